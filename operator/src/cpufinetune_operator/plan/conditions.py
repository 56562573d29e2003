"""Conditions, by the rules that `kubectl wait`, Helm and Flux rely on (kstatus)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cpufinetune_operator import names
from cpufinetune_operator.plan import times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from cpufinetune_operator.model import Manifest

Truth = Literal["True", "False", "Unknown"]
# Reconciling and Stalled are abnormal when true, and there only then; the others are always there.
_ONLY_WHILE_TRUE = (names.RECONCILING, names.STALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One aspect of a job's state."""

    type: str
    status: Truth
    reason: str
    message: str


def update(
    old: Iterable[Mapping[str, Any]], new: Iterable[Condition], generation: int, now: datetime
) -> list[Manifest]:
    """The conditions to write. The time of one changes only with its status, not with its words."""
    before = {condition["type"]: condition for condition in old}
    out = []
    for condition in new:
        if condition.type in _ONLY_WHILE_TRUE and condition.status != "True":
            continue
        known = before.get(condition.type, {})
        same = known.get("status") == condition.status
        out.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": known["lastTransitionTime"] if same else times.stamp(now),
            }
        )
    return out


def find(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of a type; empty if there is none."""
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), {})


def newest_exit_reason(status: Mapping[str, Any]) -> str:
    """Why the rank that ended last did so."""
    ends = [rank["lastExit"] for rank in status.get("ranks", ()) if "lastExit" in rank]
    newest: Mapping[str, Any] = max(ends, key=lambda end: end.get("time", ""), default={})
    return str(newest.get("reason", ""))


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether any condition changed in status, reason or words, and not only in age."""
    return _essence(old) != _essence(new)


def _essence(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return sorted((one["type"], one["status"], one["reason"], one["message"]) for one in status.get("conditions", ()))
