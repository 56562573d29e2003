"""When a silent rank counts as hung: a pure function of its phase and of how long steps take."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cpufinetune.report.events import Event, Phase, Step

if TYPE_CHECKING:
    from cpufinetune.job.document import Auto

# Auto: steps differ in length, hosts hiccup; a hang that is found a minute late costs less than a false alarm.
STEPS = 20
SHORTEST = 60.0
# Before the first step a rank may fetch, tokenise, load and compile; saving may meet a slow volume.
UNMEASURED = 1800.0
REMEMBERED = 64


@dataclass(slots=True)
class StallClock:
    """The silence of one rank. Times are seconds of one clock."""

    setting: Auto | int
    last: float
    training: bool = False
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def hear(self, event: Event, now: float) -> None:
        """Take note of a sign of life."""
        self.last = now
        if isinstance(event, Step):
            self._steps.append(event.seconds)
        elif isinstance(event, Phase):
            self.training = event.name in {"Train", "Evaluate"}

    def allowed(self) -> float:
        """Return the seconds of silence that are still fine."""
        if self.setting != "Auto":
            # What is no training may be silent for long: reading, loading, a slow volume.
            return float(self.setting) if self.training else max(UNMEASURED, float(self.setting))
        if not self.training or not self._steps:
            return UNMEASURED
        return max(SHORTEST, STEPS * statistics.median(self._steps))

    def stalled(self, now: float) -> bool:
        """Tell whether the rank has been silent for too long."""
        return now - self.last > self.allowed()
