"""One rank's share of each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cpufinetune.train.data.batches import Indices, Schedule, cut, deal, plan_epoch

if TYPE_CHECKING:
    from cpufinetune.train.data.store import Split


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank computes in one step. Without samples of its own a rank computes a borrowed one at weight zero.

    `vocabulary` are the tokens of the whole batch, over all ranks, each once.
    """

    micro_batches: list[Indices]
    samples: int
    tokens: int
    padded_tokens: int
    batch_samples: int
    vocabulary: Indices


@dataclass(slots=True)
class BatchPlan:
    """The batches of a run as one rank sees them; epochs are planned as they come."""

    split: Split
    schedule: Schedule
    seed: int
    rank: int
    world_size: int
    micro_batch_size: int
    pad_token: int = 0
    _epoch: int = -1
    _batches: list[Indices] = field(default_factory=list)
    _lengths: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def share(self, step: int) -> Share:
        """Return this rank's part of the 0-based `step`."""
        epoch, position = self.schedule.locate(step)
        if epoch != self._epoch:
            self._lengths = self.split.lengths
            self._batches = plan_epoch(self._lengths, self.schedule.batch_size, self.seed, epoch)
            self._epoch = epoch
        batch = self._batches[position]
        mine = deal(batch, self._lengths, self.world_size)[self.rank]
        vocabulary = self.split.vocabulary(batch, self.pad_token)
        if len(mine) == 0:
            return Share([batch[:1]], 0, 0, 0, len(batch), vocabulary)
        parts = cut(mine, self._lengths, self.micro_batch_size)
        padded = sum(len(part) * int(self._lengths[part].max()) for part in parts)
        return Share(parts, len(mine), int(self._lengths[mine].sum()), padded, len(batch), vocabulary)
