"""A run in words: the lines that consoles print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration(seconds: float) -> str:
    """Seconds as a person says them: `12s`, `1m12s`, `2h05m`, `1d03h`."""
    whole = max(0, round(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def number(value: float) -> str:
    """Three digits that matter, no exponent for what a rate can be: `0.412`, `38.2`, `3104`."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - where three digits are whole


def steps(progress: Mapping[str, Any]) -> str:
    """`120/300`, or `120` while the total is unknown."""
    total = progress["totalSteps"]
    return f"{progress['step']}/{total}" if total is not None else str(progress["step"])


def measures(progress: Mapping[str, Any]) -> list[str]:
    """What is measured of a snapshot, each with its name and unit; what is unknown is left out."""
    found = [
        _part("loss {}", progress["smoothedLoss"]),
        _part("{} samples/s", progress["samplesPerSecond"]),
        _part("{} tokens/s", progress["tokensPerSecond"]),
        _share("padding", progress["paddingShare"]),
        _share("comm", progress["communicationShare"]),
    ]
    return [part for part in found if part]


def progress_line(progress: Mapping[str, Any]) -> str:
    """A snapshot on one line; before the first step, the phase."""
    if not progress["step"]:
        return (progress["phase"] or "starting").lower()
    parts = [f"step {steps(progress)}", _part("epoch {}", progress["epoch"]), *measures(progress)]
    if progress["etaSeconds"] is not None:
        parts.append(f"eta {duration(progress['etaSeconds'])}")
    return "  ".join(part for part in parts if part)


def evaluation_line(evaluation: Mapping[str, Any]) -> str:
    """An evaluation with all its metrics, marked if it is the best so far."""
    metrics = "  ".join(f"{name} {_metric(value)}" for name, value in evaluation["metrics"].items())
    best = "  (best)" if evaluation["best"] else ""
    return f"{evaluation['split']} at step {evaluation['step']}  {metrics}{best}"


def closing_lines(report: Mapping[str, Any]) -> list[str]:
    """How the run ended: what came out and where it is, or what went wrong and how to mend it."""
    progress = report["progress"]
    seconds = report["wallSeconds"]
    took = f" after {duration(seconds)}" if seconds is not None else ""
    restarts = f", {progress['restarts']} restart(s)" if progress["restarts"] else ""
    lines = [f"{report['outcome']}{took}: step {steps(progress)}{restarts}"]
    if report["outcome"] == "Failed" and progress["failure"]:
        failure = progress["failure"]
        lines.append(f"{failure['reason']} on rank {failure['rank']}: {failure['message']}")
        lines += [f"fix: {failure['fix']}"] if failure["fix"] else []
    lines.append(intel_line(report["setup"]))
    if report["result"]:
        result = report["result"]
        lines.append("  ".join(f"{name} {_metric(value)}" for name, value in result["metrics"].items()))
        lines.append(f"model: {result['path']} ({size(result['bytes'])})")
    return [line for line in lines if line]


def intel_line(setup: Mapping[str, Any] | None) -> str:
    """Whether Intel's extension computed the steps, if it was a question; empty otherwise."""
    found = ((setup or {}).get("extra") or {}).get("intel") or {}
    if "secondsWith" in found and "secondsWithout" in found:
        with_, without = (number(found[name]) for name in ("secondsWith", "secondsWithout"))
        figures = f": {with_} s a step with it, {without} s without"
    elif found.get("on"):
        figures = ""
    else:
        return ""
    return f"intel: {'on' if found['on'] else 'off'}, {found['reason']}{figures}"


def rank_line(rank: int, text: str) -> str:
    """A line of a rank's own output, as the launcher passes it on."""
    return f"[rank {rank}] {text.rstrip()}"


def size(amount: float) -> str:
    """Bytes in the largest binary unit that keeps the number above one: `255 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:  # noqa: PLR2004 - the step between binary units
            return f"{number(amount)} {unit}"
        amount /= 1024
    return f"{number(amount)} TiB"


def _metric(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


def _part(form: str, value: float | None) -> str:
    return form.format(number(value)) if value is not None else ""


def _share(name: str, value: float | None) -> str:
    return f"{name} {100 * value:.0f}%" if value is not None else ""
