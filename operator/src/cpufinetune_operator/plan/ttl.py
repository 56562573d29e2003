"""The time for which a job is kept once it has ended.

The operator deletes the job itself, for which it needs the right to delete `cpufinetunes`: deleting the children alone
would leave an object behind that says nothing of use, and its volume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpufinetune_operator.model import Observed
    from cpufinetune_operator.plan.completion import Ending


def remaining(observed: Observed, ending: Ending) -> float | None:
    """Seconds that are left, zero or less if none; None if it is kept for ever."""
    spec = observed.job.spec
    if spec is None or spec.run_policy.ttl_seconds_after_finished is None or ending.at is None:
        return None
    return spec.run_policy.ttl_seconds_after_finished - (observed.now - ending.at).total_seconds()
