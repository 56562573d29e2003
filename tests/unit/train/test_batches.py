from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpufinetune.train.data.batches import Schedule, cut, deal, plan_epoch, plan_evaluation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cpufinetune.train.data.batches import Indices

WORLDS = [1, 2, 3, 4, 8]


def everything(parts: Sequence[Indices]) -> list[int]:
    return sorted(np.concatenate(list(parts)).tolist())


@pytest.mark.parametrize(
    ("samples", "batch_size", "sizes"),
    [
        pytest.param(1, 8, [1], id="one sample is one batch"),
        pytest.param(7, 8, [7], id="fewer samples than a batch"),
        pytest.param(8, 8, [8], id="exactly one batch"),
        pytest.param(9, 8, [1, 8], id="one sample too many is a batch of its own"),
        pytest.param(5, 1, [1] * 5, id="a sample a batch"),
        pytest.param(1003, 10, [3, *[10] * 100], id="several buckets leave one short batch together"),
    ],
)
def test_an_epoch_has_every_sample_exactly_once_in_full_batches_but_one(
    skewed: Callable[..., Indices], samples: int, batch_size: int, sizes: list[int]
) -> None:
    batches = plan_epoch(skewed(samples), batch_size, seed=1, epoch=0)
    assert everything(batches) == list(range(samples))
    assert sorted(len(batch) for batch in batches) == sizes
    assert len(batches) == Schedule(samples, batch_size, 1.0).steps_per_epoch


def test_the_same_seed_and_epoch_give_the_same_batches(skewed: Callable[..., Indices]) -> None:
    first, second = (plan_epoch(skewed(500), 16, seed=3, epoch=2) for _ in range(2))
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


@pytest.mark.parametrize(
    ("seed", "epoch"), [pytest.param(3, 1, id="another epoch"), pytest.param(4, 0, id="another seed")]
)
def test_another_epoch_or_seed_mixes_other_batches(skewed: Callable[..., Indices], seed: int, epoch: int) -> None:
    known = {frozenset(batch.tolist()) for batch in plan_epoch(skewed(500), 16, seed=3, epoch=0)}
    other = {frozenset(batch.tolist()) for batch in plan_epoch(skewed(500), 16, seed=seed, epoch=epoch)}
    assert len(known & other) <= 1


def test_lengths_within_a_batch_are_near_equal(skewed: Callable[..., Indices]) -> None:
    lengths = skewed(20_000)
    batches = plan_epoch(lengths, 32, seed=1, epoch=0)
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    assert padded / lengths.sum() < 1.05


def test_batches_come_in_no_order_of_length(skewed: Callable[..., Indices]) -> None:
    lengths = skewed(20_000)
    means = [float(lengths[batch].mean()) for batch in plan_epoch(lengths, 32, seed=1, epoch=0)]
    assert abs(float(np.corrcoef(np.arange(len(means)), means)[0, 1])) < 0.15


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 31, 64])
def test_a_batch_is_dealt_out_fairly(skewed: Callable[..., Indices], world_size: int, size: int) -> None:
    for seed in range(20):
        lengths = skewed(size + 10, seed=seed)
        batch = np.random.default_rng(seed).permutation(len(lengths))[:size]
        shares = deal(batch, lengths, world_size)
        assert len(shares) == world_size
        assert everything(shares) == sorted(batch.tolist())
        counts = [len(share) for share in shares]
        assert max(counts) - min(counts) <= 1
        tokens = [int(lengths[share].sum()) for share in shares]
        assert max(tokens) - min(tokens) <= lengths[batch].max()


def test_ranks_beyond_the_batch_get_nothing() -> None:
    shares = deal(np.array([4, 2]), np.arange(1, 6), 4)
    assert [share.tolist() for share in shares] == [[4], [2], [], []]


@pytest.mark.parametrize(
    ("lengths", "size", "parts"),
    [
        pytest.param([3, 1, 2], 3, [[0, 1, 2]], id="what fits stays one micro-batch in its order"),
        pytest.param([3, 1, 2, 4], 2, [[3, 0], [2, 1]], id="similar lengths stay together, longest first"),
        pytest.param([5, 4, 3, 2, 1], 2, [[0, 1], [2, 3], [4]], id="the remainder comes last"),
        pytest.param([7, 6, 5, 4, 3, 2, 1], 3, [[0, 1, 2], [3, 4], [5, 6]], id="micro-batches differ by one at most"),
        pytest.param([1, 2], 1, [[1], [0]], id="one sample a micro-batch"),
    ],
)
def test_a_share_is_cut_into_as_few_micro_batches_as_allowed(
    lengths: list[int], size: int, parts: list[list[int]]
) -> None:
    found = cut(np.arange(len(lengths)), np.array(lengths), size)
    assert [part.tolist() for part in found] == parts


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("samples", [1, 3, 8, 100, 257])
def test_an_evaluation_has_every_sample_once_over_all_ranks(
    skewed: Callable[..., Indices], samples: int, world_size: int
) -> None:
    lengths = skewed(samples)
    ranks = [plan_evaluation(lengths, 16, world_size, rank) for rank in range(world_size)]
    assert everything([batch for batches in ranks for batch in batches]) == list(range(samples))
    counts = [sum(len(batch) for batch in batches) for batches in ranks]
    assert max(counts) - min(counts) <= 1
    assert all(1 <= len(batch) <= 16 for batches in ranks for batch in batches)


def test_an_evaluation_goes_from_long_to_short(skewed: Callable[..., Indices]) -> None:
    lengths = skewed(300)
    batches = plan_evaluation(lengths, 16, world_size=2, rank=1)
    assert all(lengths[longer].min() >= lengths[shorter].max() for longer, shorter in pairwise(batches))


@pytest.mark.parametrize(
    ("schedule", "per_epoch", "total"),
    [
        pytest.param(Schedule(100, 10, 3.0), 10, 30, id="whole epochs"),
        pytest.param(Schedule(101, 10, 3.0), 11, 33, id="a partial batch is a step"),
        pytest.param(Schedule(100, 10, 2.5), 10, 25, id="half an epoch"),
        pytest.param(Schedule(100, 10, 0.26), 10, 3, id="a fraction of an epoch is rounded to steps"),
        pytest.param(Schedule(100, 10, 0.001), 10, 1, id="there is always one step"),
        pytest.param(Schedule(3, 32, 2.0), 1, 2, id="data smaller than a batch"),
        pytest.param(Schedule(100, 10, 3.0, 7), 10, 7, id="maxSteps ends it earlier"),
        pytest.param(Schedule(100, 10, 3.0, 70), 10, 30, id="maxSteps beyond the epochs changes nothing"),
    ],
)
def test_steps_follow_from_samples_epochs_and_max_steps(schedule: Schedule, per_epoch: int, total: int) -> None:
    assert (schedule.steps_per_epoch, schedule.total_steps) == (per_epoch, total)


@pytest.mark.parametrize(("step", "place"), [(0, (0, 0)), (10, (0, 10)), (11, (1, 0)), (32, (2, 10))])
def test_a_step_is_located_in_its_epoch(step: int, place: tuple[int, int]) -> None:
    assert Schedule(101, 10, 3.0).locate(step) == place
