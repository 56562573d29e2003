"""Which samples form which step, and which rank computes which of them.

A pure function of (lengths, batch size, seed, epoch): the batches and their order do not depend on the number of
ranks, and nothing has to be saved to resume at any step. Lengths are token counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

# Batches whose samples are sorted by length together: large enough that a batch holds near-equal lengths, small
# enough that batches stay random samples of the data.
BATCHES_PER_BUCKET = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many optimizer steps a run has."""

    samples: int
    batch_size: int
    epochs: float
    max_steps: int | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the data; one of them is a partial batch if the samples do not divide."""
        return -(-self.samples // self.batch_size)

    @property
    def total_steps(self) -> int:
        """Steps of the run, at least one."""
        steps = max(1, round(self.epochs * self.steps_per_epoch))
        return min(steps, self.max_steps) if self.max_steps else steps

    def locate(self, step: int) -> tuple[int, int]:
        """Return (epoch, position in the epoch) of the 0-based `step`."""
        return divmod(step, self.steps_per_epoch)


def plan_epoch(lengths: Indices, batch_size: int, seed: int, epoch: int) -> list[Indices]:
    """Cut one epoch into batches of near-equal lengths, in random order.

    Args:
        lengths: tokens of each sample, shape (samples,).
        batch_size: global samples a step.
        seed: the job's seed.
        epoch: 0-based; each epoch is shuffled anew.

    Returns:
        Index arrays of shape (batch_size,); one of them, anywhere, is shorter if the samples do not divide.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch, 0xBA7C4]))
    order = rng.permutation(len(lengths))
    bucket = batch_size * BATCHES_PER_BUCKET
    batches: list[Indices] = []
    for start in range(0, len(order), bucket):
        part = order[start : start + bucket]
        part = part[np.argsort(lengths[part], kind="stable")]
        batches.extend(part[at : at + batch_size] for at in range(0, len(part), batch_size))
    return [batches[at] for at in rng.permutation(len(batches))]


def deal(batch: Indices, lengths: Indices, world_size: int) -> list[Indices]:
    """Deal one batch to the ranks so that each gets as many samples and nearly as many tokens as the others.

    The longest samples are dealt first, back and forth (0 1 2 2 1 0 ...), so that ranks finish a step together.

    Returns:
        One index array a rank; sizes differ by one at most.
    """
    order = batch[np.argsort(-lengths[batch], kind="stable")]
    positions = np.arange(len(order))
    lap, seat = np.divmod(positions, world_size)
    owner = np.where(lap % 2 == 0, seat, world_size - 1 - seat)
    return [order[owner == rank] for rank in range(world_size)]


def cut(samples: Indices, lengths: Indices, micro_batch_size: int) -> list[Indices]:
    """Cut one rank's share into micro-batches of similar lengths, as few as `micro_batch_size` allows."""
    if len(samples) <= micro_batch_size:
        return [samples]
    parts = -(-len(samples) // micro_batch_size)
    return np.array_split(samples[np.argsort(-lengths[samples], kind="stable")], parts)


def plan_evaluation(lengths: Indices, batch_size: int, world_size: int, rank: int) -> list[Indices]:
    """Batches of one rank's share of an evaluation: every sample once over all ranks, similar lengths together."""
    order = np.argsort(-lengths, kind="stable")
    mine = order[rank::world_size]
    return [mine[at : at + batch_size] for at in range(0, len(mine), batch_size)]
