"""Keys that wait for work: each at most once, none twice at the same time, some not before their time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")

FIRST_DELAY = 0.5
LONGEST_DELAY = 120.0
_MOST_STALE = 64


@dataclass(slots=True)
class Backlog(Generic[K]):
    """A queue without a clock or a loop: every method is told the time, in seconds.

    Attributes:
        random: numbers from 0 to 1, which spread the retries of keys that failed together.
    """

    random: Callable[[], float]
    _waiting: dict[K, float] = field(default_factory=dict)
    _running: dict[K, float] = field(default_factory=dict)
    _due: dict[K, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, K]] = field(default_factory=list)
    _failures: dict[K, int] = field(default_factory=dict)
    _count: int = 0

    def add(self, key: K, now: float) -> None:
        """Ask for work on a key. One that is being worked on gets another turn afterwards."""
        self._waiting.setdefault(key, now)

    def add_later(self, key: K, due: float) -> None:
        """Ask for work at a time; it replaces what was asked so before."""
        self._due[key] = due
        if len(self._heap) > 2 * len(self._due) + _MOST_STALE:
            # Keys that are put off again and again must not pile up until their time has come.
            live = {(due, key) for key, due in self._due.items()}
            self._heap = [entry for entry in self._heap if (entry[0], entry[2]) in live and entry[2] != key]
            heapq.heapify(self._heap)
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))

    def take(self, now: float) -> K | None:
        """The key that has waited longest and is not being worked on; None if there is none."""
        self._ripen(now)
        key = next((key for key in self._waiting if key not in self._running), None)
        if key is not None:
            del self._waiting[key]
            # The look that is taken now stands for the one that was planned.
            self._due.pop(key, None)
            self._running[key] = now
        return key

    def succeed(self, key: K, now: float, after: float | None = None) -> None:
        """Work on a key is done; `after` says in how many seconds it wants another turn."""
        del self._running[key]
        self._failures.pop(key, None)
        if after is not None:
            self.add_later(key, now + after)

    def fail(self, key: K, now: float, after: float | None = None) -> float:
        """Work on a key failed: again in a while that doubles each time, or is as long as the other side asked."""
        del self._running[key]
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(FIRST_DELAY * 2.0 ** min(failures - 1, 32), LONGEST_DELAY) * (0.5 + self.random() / 2)
        delay = max(delay, after or 0.0)
        self.add_later(key, now + delay)
        return delay

    def next_due(self) -> float | None:
        """When the next key is due; None if none is."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def oldest(self, now: float) -> float:
        """Seconds for which the longest waiting key has waited, or been worked on."""
        since = [*self._waiting.values(), *self._running.values()]
        return now - min(since) if since else 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def _ripen(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            self.add(key, due)
