"""A run as Prometheus reads it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Name, type, help, and the key of the snapshot that it shows.
METRICS = (
    ("cpufinetune_step", "gauge", "Optimizer steps taken.", "step"),
    ("cpufinetune_total_steps", "gauge", "Optimizer steps that there will be in all.", "totalSteps"),
    ("cpufinetune_loss", "gauge", "Smoothed training loss.", "smoothedLoss"),
    ("cpufinetune_samples_per_second", "gauge", "Training samples a second of all ranks.", "samplesPerSecond"),
    ("cpufinetune_tokens_per_second", "gauge", "Training tokens a second of all ranks.", "tokensPerSecond"),
    ("cpufinetune_communication_ratio", "gauge", "Share of step time spent in collectives.", "communicationShare"),
    ("cpufinetune_restarts_total", "counter", "Attempts that failed.", "restarts"),
    ("cpufinetune_attempt", "gauge", "Number of the current life of all ranks.", "attempt"),
)


def exposition(values: Mapping[str, Any]) -> str:
    """Return the text format (0.0.4) of a snapshot; what is unknown is left out."""
    lines = []
    for name, kind, text, key in METRICS:
        if values.get(key) is not None:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {values[key]}"]
    return "\n".join(lines) + "\n"
