"""The run as a picture: loss and metric above, throughput below."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cpufinetune.report.evaluations import primary_metric
from cpufinetune.report.text import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

_LOSS, _METRIC, _SPEED, _RESTART = "#2563eb", "#d97706", "#0d9488", "#be123c"
_INK, _MUTED, _GRID = "#1f2937", "#6b7280", "#e5e7eb"
_LINES_FROM = 3  # fewer points than this are drawn as dots: a line of one point cannot be seen
_DOTS_PER_INCH = 150


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Draws a report from `build_report` to a PNG, SVG or PDF, by the path's suffix.

    Raises:
        ValueError: the suffix is no known format.
        OSError: the file cannot be written.
    """
    figure = Figure(figsize=(10, 6.4), layout="constrained", facecolor="white")
    losses, speeds = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for axes in (losses, speeds):
        _dress(axes)
    metrics = _draw_metric(losses, report["evaluations"])
    _draw_loss(losses, report["history"])
    _draw_speed(speeds, report["history"])
    _draw_restarts((losses, speeds), report["restarts"])
    _draw_legend(losses, metrics)
    _draw_legend(speeds)
    _draw_title(losses, report)
    figure.align_ylabels()
    path.parent.mkdir(parents=True, exist_ok=True)
    # A date would make two drawings of one report differ; PNG holds none anyway.
    metadata = (
        {} if path.suffix.lower() == ".png" else {"Date" if path.suffix.lower() == ".svg" else "CreationDate": None}
    )
    figure.savefig(path, dpi=_DOTS_PER_INCH, metadata=metadata)


def _dress(axes: Axes) -> None:
    axes.grid(visible=True, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_GRID)
    axes.tick_params(colors=_MUTED, length=0, labelsize=9)
    axes.margins(x=0.01)


def _label(axes: Axes, text: str, color: str = _INK) -> None:
    axes.set_ylabel(text, color=color, fontsize=10)


def _draw_loss(axes: Axes, history: Mapping[str, Sequence[float | None]]) -> None:
    steps, raw, smoothed = _gaps(history["step"]), _gaps(history["loss"]), _gaps(history["smoothedLoss"])
    _label(axes, "loss", _LOSS)
    marker = "o" if len(steps) < _LINES_FROM else ""
    axes.plot(steps, raw, color=_LOSS, alpha=0.3, linewidth=0.8, marker=marker, label="loss, each step")
    axes.plot(steps, smoothed, color=_LOSS, linewidth=2, marker=marker, label="loss, smoothed")
    if all(map(math.isnan, raw)):
        _say_nothing(axes, "the loss is not a number" if raw else "no step was made")


def _say_nothing(axes: Axes, why: str) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", fontsize=11, color=_MUTED)


def _draw_metric(axes: Axes, evaluations: Sequence[Mapping[str, Any]]) -> Axes | None:
    validations = [evaluation for evaluation in evaluations if evaluation["split"] == "validation"]
    name = primary_metric(validations[-1]["metrics"]) if validations else None
    if name is None:
        return None
    twin = axes.twinx()
    _dress(twin)
    twin.grid(visible=False)
    _label(twin, f"validation {name}", _METRIC)
    twin.plot(
        [evaluation["step"] for evaluation in validations],
        _gaps([evaluation["metrics"].get(name) for evaluation in validations]),
        color=_METRIC,
        linewidth=1.5,
        marker="o",
        markersize=5,
        markeredgecolor="white",
        label=f"validation {name}",
    )
    return twin


def _draw_speed(axes: Axes, history: Mapping[str, Sequence[float | None]]) -> None:
    steps, rates = _gaps(history["step"]), _gaps(history["samplesPerSecond"])
    marker = "o" if len(steps) < _LINES_FROM else ""
    axes.plot(steps, rates, color=_SPEED, alpha=0.3, linewidth=0.8, marker=marker, label="each step")
    axes.plot(steps, _running_median(rates), color=_SPEED, linewidth=2, marker=marker, label="running median")
    _label(axes, "samples/s", _SPEED)
    axes.set_xlabel("optimizer step", color=_INK, fontsize=10)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(steps) == 1:
        axes.set_xlim(steps[0] - 1, steps[0] + 1)


def _draw_restarts(panels: Sequence[Axes], restarts: Sequence[Mapping[str, Any]]) -> None:
    for axes in panels:
        for index, restart in enumerate(restarts):
            label = f"restart ({len(restarts)})" if index == 0 and axes is panels[-1] else None
            axes.axvline(restart["reachedStep"], color=_RESTART, linewidth=1.2, linestyle="--", label=label)


def _draw_legend(axes: Axes, twin: Axes | None = None) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if twin is not None:
        more_handles, more_labels = twin.get_legend_handles_labels()
        handles, labels = handles + more_handles, labels + more_labels
    # Above the panel: inside, it would sooner or later cover a curve.
    axes.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
        borderpad=0.2,
        ncols=len(labels),
        fontsize=9,
        frameon=False,
        labelcolor=_INK,
    )


def _draw_title(axes: Axes, report: Mapping[str, Any]) -> None:
    setup, result = report["setup"] or {}, report["result"] or {}
    name = report["job"].get("metadata", {}).get("name", "run")
    metrics = result.get("metrics", {})
    metric = primary_metric(metrics)
    parts = [
        setup.get("model", ""),
        f"{setup['worldSize']} rank{'s' if setup['worldSize'] > 1 else ''}" if setup else "",
        " ".join((setup["backend"], setup["precision"])) if setup else "",
        report["outcome"].lower() + (f" after {duration(report['wallSeconds'])}" if report["wallSeconds"] else ""),
        f"{metric} {metrics[metric]:.4g}" if metric and metrics[metric] is not None else "",
    ]
    _write_above(axes, name, points=46, fontsize=16, fontweight="bold", color=_INK)
    _write_above(axes, "  ·  ".join(part for part in parts if part), points=26, fontsize=10, color=_MUTED)


def _write_above(axes: Axes, text: str, *, points: int, **style: Any) -> None:
    # A dollar sign would start a formula.
    axes.annotate(
        text,
        xy=(0, 1),
        xytext=(0, points),
        xycoords="axes fraction",
        textcoords="offset points",
        parse_math=False,
        **style,
    )


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _running_median(values: Sequence[float]) -> list[float]:
    # A median, since a single slow step (a page fault, a neighbour) is no change of speed.
    half = max(1, len(values) // 60)
    windows = (
        [value for value in values[max(0, at - half) : at + half + 1] if not math.isnan(value)]
        for at in range(len(values))
    )
    return [median(window) if window else float("nan") for window in windows]
