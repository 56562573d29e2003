"""The time that a job may take. It counts from the start, and anew from each resume: time suspended is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune_operator import names
from cpufinetune_operator.plan import times
from cpufinetune_operator.plan.completion import Ending

if TYPE_CHECKING:
    from cpufinetune_operator.model import Observed


def remaining(observed: Observed) -> float | None:
    """Seconds that are left, zero or less if none; None if there is no limit or the clock stands still."""
    spec, started = observed.job.spec, times.parse(observed.job.status.get("startTime"))
    if spec is None or started is None or spec.run_policy.suspend:
        return None
    limit = spec.run_policy.active_deadline_seconds
    return None if limit is None else limit - (observed.now - started).total_seconds()


def exceeded(observed: Observed) -> Ending | None:
    """The job's end if its time is up. Its launchers keep the same time, but need not be alive."""
    left = remaining(observed)
    if left is None or left > 0:
        return None
    text = "Not done within runPolicy.activeDeadlineSeconds; raise it or take more nodes, and create the job anew."
    return Ending(type="Failed", reason=names.REASON_DEADLINE, message=text, at=observed.now)
