"""The report of a run, as a file that outlives it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cpufinetune.report.files import replace_text
from cpufinetune.report.plain import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cpufinetune.report.progress import Progress

SCHEMA_VERSION = 1


def build_report(
    progress: Progress,
    *,
    job_document: Mapping[str, Any],
    layout: object,
    versions: Mapping[str, str],
    machine: Mapping[str, Any],
    plan: Mapping[str, Any],
    attempts: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """All that is worth keeping of a run, as strict JSON; times in seconds, memory in bytes.

    `history` holds columns of equal length, one entry a step. `speed` is over the training time of
    all steps, `progress` is the last snapshot, and `outcome` is Succeeded, Failed (its last attempt) or Interrupted.
    The other arguments go in as they are.
    """
    record = progress.record()
    return {
        "schemaVersion": SCHEMA_VERSION,
        "outcome": _outcome(record),
        **{key: record[key] for key in ("startTime", "wallSeconds", "phaseSeconds", "totals")},
        "speed": _speed(record),
        "peakMemory": _peak_memory(record["progress"]["ranks"]),
        "result": record["result"],
        "progress": record["progress"],
        "job": plain(job_document),
        "setup": record["setup"],
        "plan": plain(plan),
        "layout": plain(layout),
        "machine": plain(machine),
        "versions": plain(versions),
        "attempts": plain(attempts),
        "restarts": record["restarts"],
        "failures": record["failures"],
        "checkpoints": record["checkpoints"],
        "evaluations": record["evaluations"],
        "history": record["history"],
    }


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Writes the report so that a reader, or a crash, sees the old file or the new one and never a part.

    Raises:
        OSError: the folder cannot be written; the old file is as it was.
        ValueError: the report holds NaN or an infinity.
    """
    replace_text(path, _layout(report))


def _layout(report: Mapping[str, Any]) -> str:
    # A line for each section, column and list entry: readable and easy to search, without a line for each number.
    sections = [f"  {_compact(key)}: {_section(value)}" for key, value in report.items()]
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _section(value: Any) -> str:
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"    {_compact(key)}: {_compact(item)}" for key, item in value.items()) + "\n  }"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {_compact(item)}" for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False)


def _outcome(record: Mapping[str, Any]) -> str:
    if record["result"]:
        return "Succeeded"
    return "Failed" if record["progress"]["failure"] else "Interrupted"


def _speed(record: Mapping[str, Any]) -> dict[str, float | None]:
    history, totals = record["history"], record["totals"]
    return {
        "samplesPerSecond": _mean(history["samplesPerSecond"], history["seconds"]),
        "tokensPerSecond": _mean(history["tokensPerSecond"], history["seconds"]),
        "communicationShare": _ratio(totals["communicationSeconds"], totals["stepSeconds"]),
        "paddingShare": record["progress"]["paddingShare"],
    }


def _mean(rates: Sequence[float | None], seconds: Sequence[float]) -> float | None:
    known = [(rate, weight) for rate, weight in zip(rates, seconds, strict=True) if rate is not None]
    return _ratio(sum(rate * weight for rate, weight in known), sum(weight for _, weight in known))


def _peak_memory(ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = {str(rank["rank"]): rank["peakRssBytes"] for rank in ranks if rank["peakRssBytes"] is not None}
    return {"ranks": known, "largestBytes": max(known.values(), default=None), "totalBytes": sum(known.values())}


def _ratio(amount: float, of: float) -> float | None:
    return amount / of if of > 0 else None
