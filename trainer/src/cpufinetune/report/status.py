"""What a run looks like in the status of its `CpuFineTune`: the CRD's keys, and only what is known.

Pure; the report server and the termination message both show these parts.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from cpufinetune.report.plain import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import PurePath

    from cpufinetune.report.events import Result, Setup
    from cpufinetune.report.progress import Progress

# Bounds of the CRD.
MOST_RANKS, MOST_METRICS = 256, 32
LONGEST_REASON, LONGEST_MESSAGE, LONGEST_NAME = 64, 4096, 253
# Best for training first; what else a CPU has does not make it faster here.
BEST_ISA = ("AMX_BF16", "AVX512_BF16", "AVX512F", "AVX2")
DIGITS = 6


def progress_status(progress: Progress) -> dict[str, Any]:
    """Return `status.progress`; a loss that is no number is left out."""
    state = progress.snapshot()
    # The smoothed loss passes over what is not finite: it alone would hide that a run has diverged.
    finite = state["loss"] is not None
    return _known(
        {
            "step": state["step"],
            "totalSteps": state["totalSteps"],
            "epoch": _number(state["epoch"]),
            "loss": _number(state["smoothedLoss"]) if finite else None,
            "metric": _number(progress.validation_metric(), most=1.0),
            "samplesPerSecond": _number(state["samplesPerSecond"]),
            "etaSeconds": state["etaSeconds"],
            "lastHeartbeatTime": state["lastHeartbeatTime"],
        }
    )


def layout_status(facts: Sequence[Mapping[str, Any]], ranks: int | None, setup: Setup | None) -> dict[str, Any]:
    """Return `status.layout`.

    Args:
        facts: of each node that is known, as it introduced itself.
        ranks: of a node.
        setup: what rank 0 told of the choices made.
    """
    shared = set.intersection(*(set(fact["isa"]) for fact in facts)) if facts else set()
    return _known(
        {
            "ranks": ranks,
            "threads": min((fact["threads"] for fact in facts), default=None),
            "cores": min((fact["cores"] for fact in facts), default=None),
            "backend": None if setup is None else setup.backend[:32],
            "backendReason": None if setup is None else setup.backend_reason[:256],
            "precision": None if setup is None else setup.precision[:32],
            "isa": next((isa for isa in BEST_ISA if isa in shared), None),
            "pinned": all(fact["pinned"] for fact in facts) if facts else None,
        }
    )


def ranks_status(
    causes: Iterable[Mapping[str, Any]], ranks: int | None, name_of: Callable[[int], str]
) -> list[dict[str, Any]]:
    """Return `status.ranks`: the last exit of each rank that ended for a reason of its own.

    Args:
        causes: documents of causes, the earliest first.
        ranks: of a node; a node that was lost took them all along.
        name_of: names a node.
    """
    last: dict[int, dict[str, Any]] = {}
    for cause in causes:
        if cause["kind"] in {"Stopped", "Interrupted"}:
            continue
        node, rank = cause["node"], cause["rank"]
        lost = cause["kind"] == "NodeLost" and rank is None
        for number in range(node * (ranks or 0), (node + 1) * (ranks or 0)) if lost else [rank]:
            # A preparation that failed has no rank.
            if number is not None and number >= 0:
                last.pop(number, None)
                last[number] = {"rank": number, "node": name_of(node)[:LONGEST_NAME], "lastExit": _exit(cause)}
    kept = list(last.values())[-MOST_RANKS:]
    return sorted(kept, key=lambda one: one["rank"])


def _exit(cause: Mapping[str, Any]) -> dict[str, Any]:
    return _known(
        {
            "reason": camel_case(cause["reason"])[:LONGEST_REASON],
            "code": cause["code"],
            "message": _cut(cause["message"], LONGEST_MESSAGE),
            "time": timestamp(cause["time"]),
        }
    )


def result_status(result: Result, root: PurePath) -> dict[str, Any]:
    """Return `status.result`; the path is below `root`, the output's."""
    path = root.__class__(result.path)
    metrics = {name: _number(value) for name, value in result.metrics.items()}
    return {
        "path": str(path.relative_to(root) if path.is_relative_to(root) else path),
        "metrics": dict(list(_known(metrics).items())[:MOST_METRICS]),
        "checksum": result.checksum,
        "bytes": result.bytes,
    }


def failure_status(reason: str, message: str, fix: str) -> dict[str, str]:
    """Return why a job failed, as a condition can say it."""
    return {"reason": camel_case(reason), "message": _cut(message, LONGEST_MESSAGE), "fix": _cut(fix, LONGEST_MESSAGE)}


def camel_case(reason: str) -> str:
    """Return a reason that a condition accepts: the name of any exception will do."""
    return re.sub(r"^[^A-Za-z]+|[^A-Za-z0-9_]|_+$", "", reason) or "Failed"


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _number(value: float | None, *, most: float = math.inf) -> float | None:
    """Return a value as the schema takes it, to six digits; None for all others."""
    if value is None or not math.isfinite(value) or not 0 <= value <= most:
        return None
    return float(f"{value:.{DIGITS}g}")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
