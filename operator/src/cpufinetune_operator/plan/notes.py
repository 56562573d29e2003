"""Events worth posting: what went wrong, and what somebody asked for. That all goes well is in the conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpufinetune_operator import names
from cpufinetune_operator.model import Note
from cpufinetune_operator.plan import conditions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpufinetune_operator.model import Manifest
    from cpufinetune_operator.plan.restart import Tally

# Reasons that every job passes through.
_USUAL = {"PodsPending", "Preparing", "PodRestarting", "Restarting", "Suspending", "Suspended", "Stopping", "Leftovers"}


def notes(old: Mapping[str, Any], new: Manifest, count: Tally) -> tuple[Note, ...]:
    """What changed from one status to the next; each change is told once, because the next look finds it written."""
    found = []
    if count.fresh:
        number = new.get("restarts")
        message = f"Restart {number}: {count.cause}" if count.cause else f"Restart {number}"
        found.append(Note(type="Warning", reason="Restarted", action="Restart", message=message))
    ready, before = conditions.find(new, names.READY), conditions.find(old, names.READY)
    ended = conditions.find(new, names.COMPLETE).get("status") == "True"
    news = ready["reason"] != before.get("reason") and ready["status"] != "True" and not ended
    if news and ready["reason"] not in _USUAL:
        action = "Finish" if _holds(new, names.FAILED) else "Start"
        found.append(Note(type="Warning", reason=ready["reason"], action=action, message=ready["message"]))
    if _holds(new, names.SUSPENDED) and not _holds(old, names.SUSPENDED):
        found.append(Note(type="Normal", reason="Suspended", action="Suspend", message=ready["message"]))
    elif _holds(old, names.SUSPENDED) and not _holds(new, names.SUSPENDED):
        found.append(Note(type="Normal", reason="Resumed", action="Resume", message="The job was resumed."))
    return tuple(found)


def _holds(status: Mapping[str, Any], kind: str) -> bool:
    return bool(conditions.find(status, kind).get("status") == "True")
