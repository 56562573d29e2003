"""What is known of each rank, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpufinetune.report.events import Phase

# Time between the last word of one life and the first of the next.
RESTART = "Restart"


@dataclass(slots=True)
class RankState:
    """One rank across its lives; `heard` is by the launcher's clock, `told` and `since` by the rank's."""

    attempt: int
    heard: float
    told: float
    phase: str | None = None
    since: float = 0.0
    rss_bytes: int | None = None
    peak_rss_bytes: int | None = None
    _seconds: dict[str, float] = field(default_factory=dict)

    def enter(self, event: Phase) -> None:
        """Ends the phase before; call it while `told` is still the time of the event before."""
        if self.phase is not None:
            restarted = event.attempt != self.attempt
            self._spend(self.phase, (self.told if restarted else event.time) - self.since)
            if restarted:
                self._spend(RESTART, event.time - self.told)
        self.attempt, self.phase, self.since = event.attempt, event.name, event.time

    def remember(self, *, rss_bytes: int, peak_rss_bytes: int) -> None:
        """Keeps the highest peak of all lives: a new process starts from a low one."""
        self.rss_bytes = rss_bytes
        self.peak_rss_bytes = max(peak_rss_bytes, self.peak_rss_bytes or 0)

    def phase_seconds(self) -> dict[str, float]:
        """Wall seconds by phase, the present one up to the rank's last word; `Restart` is between lives."""
        seconds = dict(self._seconds)
        if self.phase is not None:
            seconds[self.phase] = seconds.get(self.phase, 0.0) + max(0.0, self.told - self.since)
        return seconds

    def summary(self, rank: int) -> dict[str, Any]:
        """The rank as a status reports it; `lastHeartbeat` is seconds since the epoch by the launcher's clock."""
        return {
            "rank": rank,
            "phase": self.phase,
            "lastHeartbeat": self.heard,
            "rssBytes": self.rss_bytes,
            "peakRssBytes": self.peak_rss_bytes,
        }

    def _spend(self, phase: str, seconds: float) -> None:
        # A clock that was set back must not take time away.
        self._seconds[phase] = self._seconds.get(phase, 0.0) + max(0.0, seconds)
