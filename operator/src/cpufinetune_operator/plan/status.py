"""The whole status of a job, from what was observed and decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpufinetune_operator import names
from cpufinetune_operator.model import Report
from cpufinetune_operator.plan import conditions, times
from cpufinetune_operator.plan.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpufinetune_operator.model import Manifest, Observed
    from cpufinetune_operator.plan.completion import Ending
    from cpufinetune_operator.plan.restart import Tally
    from cpufinetune_operator.plan.stage import Stage


def build(
    observed: Observed, stage: Stage, count: Tally, *, started: bool = False, ending: Ending | None = None
) -> Manifest:
    """The status to write.

    Args:
        observed: what is.
        stage: how far the job is.
        count: attempts so far.
        started: its pods are created, or are there.
        ending: how it ended, if it did.
    """
    old, now = observed.job.status, observed.now
    start = _start_time(observed, started=started, ending=ending)
    # What was polled before the end is older than the last word, and than what was written of it.
    said = ending.report if ending else observed.report
    said = said if isinstance(said, Report) else Report()
    fields = {
        "observedGeneration": observed.job.generation,
        "phase": stage.phase,
        "conditions": conditions.update(
            old.get("conditions", ()), _conditions(observed, stage, ending), observed.job.generation, now
        ),
        "attempt": count.attempt if start else old.get("attempt"),
        "restarts": count.restarts,
        "startTime": start,
        "completionTime": times.stamp(ending.at or now) if ending else None,
        "progress": _progress(said.progress or old.get("progress") or {}, ending),
        "layout": said.layout or old.get("layout"),
        "ranks": [dict(rank) for rank in count.ranks],
        "result": (ending.report.result if ending and ending.report else None) or old.get("result"),
    }
    return {key: value for key, value in fields.items() if value not in (None, {}, [])}


def _progress(progress: Mapping[str, Any], ending: Ending | None) -> dict[str, Any]:
    """How far training is; nothing is left to wait for once it has ended."""
    return {key: value for key, value in progress.items() if ending is None or key != "etaSeconds"}


def differs(new: Manifest, old: Mapping[str, Any]) -> bool:
    """Whether there is anything to write."""
    return any(new.get(key) != old.get(key) for key in {*new, *old})


def _start_time(observed: Observed, *, started: bool, ending: Ending | None) -> str | None:
    """When the pods were created, at first or by the last resume: the deadline's clock runs anew then."""
    before: str | None = observed.job.status.get("startTime")
    if ending or before:
        suspended = not ending and observed.job.spec is not None and observed.job.spec.run_policy.suspend
        return None if suspended else before
    return times.stamp(observed.now) if started else None


def _conditions(observed: Observed, stage: Stage, ending: Ending | None) -> list[Condition]:
    return [
        Condition(type=names.READY, status=stage.ready, reason=stage.reason, message=stage.message),
        _flag(names.RECONCILING, stage, holds=stage.moving),
        _flag(names.STALLED, stage, holds=stage.stuck),
        _suspended(observed, stage),
        _ended(names.COMPLETE, ending),
        _ended(names.FAILED, ending),
    ]


def _flag(kind: str, stage: Stage, *, holds: bool) -> Condition:
    return Condition(type=kind, status="True" if holds else "False", reason=stage.reason, message=stage.message)


def _suspended(observed: Observed, stage: Stage) -> Condition:
    if stage.phase == names.PHASE_SUSPENDED and not stage.moving:
        return Condition(type=names.SUSPENDED, status="True", reason="Suspended", message=stage.message)
    was = conditions.find(observed.job.status, names.SUSPENDED)
    resumed = was.get("status") == "True" or was.get("reason") == "Resumed"
    reason, message = ("Resumed", "The job was resumed.") if resumed else ("NotSuspended", "The job is not suspended.")
    return Condition(type=names.SUSPENDED, status="False", reason=reason, message=message)


def _ended(kind: str, ending: Ending | None) -> Condition:
    if ending is None:
        return Condition(type=kind, status="False", reason="NotFinished", message="The job has not finished.")
    if ending.type == kind:
        return Condition(type=kind, status="True", reason=ending.reason, message=ending.message)
    other = "failed" if kind == names.COMPLETE else "is complete"
    return Condition(type=kind, status="False", reason=ending.type, message=f"The job {other}.")
