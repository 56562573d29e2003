"""How fast the current attempt trains, from the steps of its ranks."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cpufinetune.report.events import Step

_KEPT_STEPS = 1024
_STEPS_BEFORE_ETA = 3


class Speed:
    """Rates over the last `window_seconds` of training.

    The window is filled with the wall time of steps, not with the clock's, so pauses for evaluations and checkpoints
    fall out of it. A step counts once every rank has told its share, whatever order the shares arrive in.
    """

    def __init__(self, *, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._shares: dict[int, dict[int, Step]] = {}

    def reset(self) -> None:
        """Forgets all: a new attempt repeats steps, with other ranks and a cold start."""
        self._shares.clear()

    def add(self, event: Step) -> None:
        """Takes one rank's share of a step."""
        self._shares.setdefault(event.step, {})[event.rank] = event
        while len(self._shares) > _KEPT_STEPS:
            del self._shares[min(self._shares)]

    def rates(self, ranks: int) -> dict[str, float | None]:
        """Samples and tokens a second of all ranks, communication's share, and how unevenly the work is spread.

        Args:
            ranks: how many shares make a step whole.

        Returns:
            `samplesPerSecond`, `tokensPerSecond`, `communicationShare` (0 to 1, of the ranks' mean step) and
            `imbalance` (slowest rank's computing time over the mean, 1 is even); None where nothing was measured.
        """
        window = list(self._window(ranks))
        wall = sum(_wall(shares) for shares in window)
        events = [event for shares in window for event in shares]
        busy = sum(event.seconds for event in events)
        return {
            "samplesPerSecond": _ratio(sum(event.samples for event in events), wall),
            "tokensPerSecond": _ratio(sum(event.tokens for event in events), wall),
            "communicationShare": _ratio(sum(event.communication_seconds for event in events), busy),
            "imbalance": _imbalance(events),
        }

    def step_seconds(self, ranks: int) -> float | None:
        """The median wall time of a step in seconds; None until three are whole."""
        walls = [_wall(shares) for shares in self._whole(ranks)]
        return median(walls) if len(walls) >= _STEPS_BEFORE_ETA else None

    def _whole(self, ranks: int) -> Iterator[Sequence[Step]]:
        for step in sorted(self._shares, reverse=True):
            if len(self._shares[step]) >= ranks:
                yield list(self._shares[step].values())

    def _window(self, ranks: int) -> Iterator[Sequence[Step]]:
        filled = 0.0
        for shares in self._whole(ranks):
            yield shares
            filled += _wall(shares)
            if filled >= self._window_seconds:
                return


def _wall(shares: Sequence[Step]) -> float:
    return max(event.seconds for event in shares)


def _imbalance(events: Sequence[Step]) -> float | None:
    computed: defaultdict[int, float] = defaultdict(float)
    for event in events:
        computed[event.rank] += event.seconds - event.communication_seconds
    return _ratio(max(computed.values()), fmean(computed.values())) if computed else None


def _ratio(amount: float, of: float) -> float | None:
    return amount / of if of > 0 else None
