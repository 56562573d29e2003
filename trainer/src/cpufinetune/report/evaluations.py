"""Evaluations so far, and how long those to come will take."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cpufinetune.report.plain import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpufinetune.report.events import Evaluation


def primary_metric(metrics: Mapping[str, Any]) -> str | None:
    """The name of the metric that counts: the first that is no loss."""
    return next((name for name in metrics if "loss" not in name.lower()), None)


class Evaluations:
    """One entry a split and step; an evaluation that an attempt repeats replaces the one before."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, int], Evaluation] = {}
        self._last: Evaluation | None = None

    def add(self, event: Evaluation) -> None:
        """Takes one evaluation."""
        self._events[event.split, event.step] = event
        self._last = event

    @property
    def last(self) -> Evaluation | None:
        """The latest, of any split."""
        return self._last

    def validated(self) -> Mapping[str, float]:
        """The metrics of the latest one on validation samples."""
        found = [event for (split, _), event in self._events.items() if split == "validation"]
        return max(found, key=_step).metrics if found else {}

    def listed(self) -> list[dict[str, Any]]:
        """All in the order of steps."""
        return [plain(event) for event in sorted(self._events.values(), key=lambda event: (event.step, event.time))]

    def seconds_to_come(self, *, step: int, total_steps: int, test_samples: int) -> float:
        """Estimated seconds of the evaluations between a step and the end, 0 while nothing is known.

        Validations are taken to go on as often as the last two did; a test over `test_samples` at the pace of
        validation.
        """
        validations = sorted((event for (split, _), event in self._events.items() if split == "validation"), key=_step)
        if not validations:
            return 0.0
        before = validations[-2].step if len(validations) > 1 else 0
        interval = validations[-1].step - before
        # The last validation falls on the last step, whether or not the interval divides it.
        count = math.ceil(total_steps / interval) - step // interval if interval > 0 else 0
        seconds = max(0, count) * fmean(event.seconds for event in validations)
        tested = any(split == "test" for split, _ in self._events)
        samples = sum(event.samples for event in validations)
        if not tested and samples > 0:
            seconds += test_samples * sum(event.seconds for event in validations) / samples
        return seconds


def _step(event: Evaluation) -> int:
    return event.step
