"""The loss curve: one entry a step, whatever was repeated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.report.plain import plain

if TYPE_CHECKING:
    from cpufinetune.report.events import Step

_COLUMNS = (
    "step",
    "epoch",
    "loss",
    "smoothedLoss",
    "learningRate",
    "gradNorm",
    "samplesPerSecond",
    "tokensPerSecond",
    "seconds",
)
_NOTHING = float("nan")


@dataclass(slots=True)
class _Entry:
    attempt: int
    epoch: float = _NOTHING
    loss: float = _NOTHING
    smoothed: float = _NOTHING
    learning_rate: float = _NOTHING
    grad_norm: float = _NOTHING
    samples: int = 0
    tokens: int = 0
    seconds: float = 0.0


class History:
    """Loss and throughput by step; a step that an attempt repeats replaces the one before.

    Args:
        smoothing: weight of the past in the exponential mean of the loss, from 0 (none) to below 1.
    """

    def __init__(self, *, smoothing: float = 0.9) -> None:
        self._smoothing = smoothing
        self._entries: dict[int, _Entry] = {}

    def add(self, event: Step, *, attempt: int) -> None:
        """Takes one rank's share of a step; rank 0's brings the loss."""
        entry = self._entries.get(event.step)
        if entry is None or entry.attempt != attempt:
            entry = self._entries[event.step] = _Entry(attempt)
        entry.samples += event.samples
        entry.tokens += event.tokens
        entry.seconds = max(entry.seconds, event.seconds)
        entry.epoch = event.epoch
        if event.rank == 0:
            entry.loss, entry.learning_rate, entry.grad_norm = event.loss, event.learning_rate, event.grad_norm
            entry.smoothed = self._smooth(event)

    def smoothed(self, step: int) -> float:
        """The exponential mean of the loss up to the step, NaN if there is none."""
        entry = self._entries.get(step)
        return entry.smoothed if entry else _NOTHING

    def columns(self) -> dict[str, list[Any]]:
        """Lists of equal length in the order of steps, null where unknown."""
        rows = [
            (
                step,
                entry.epoch,
                entry.loss,
                entry.smoothed,
                entry.learning_rate,
                entry.grad_norm,
                entry.samples / entry.seconds if entry.seconds > 0 else None,
                entry.tokens / entry.seconds if entry.seconds > 0 else None,
                entry.seconds,
            )
            for step, entry in sorted(self._entries.items())
        ]
        return {name: plain([row[column] for row in rows]) for column, name in enumerate(_COLUMNS)}

    def _smooth(self, event: Step) -> float:
        # Built on the step before, not on the last event, so that a repeated step repeats its mean as well.
        past = self.smoothed(event.step - 1)
        if not math.isfinite(event.loss):
            return past
        return event.loss if math.isnan(past) else self._smoothing * past + (1 - self._smoothing) * event.loss
