from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cpufinetune.train.batching import BatchPlan
from cpufinetune.train.data.batches import Schedule, plan_epoch

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.train.batching import Share
    from cpufinetune.train.data.batches import Indices
    from cpufinetune.train.data.store import Split

BATCH = 6
WORLDS = [1, 2, 3, 4, 8]


def plan(split: Split, **changes: Any) -> BatchPlan:
    values: dict[str, Any] = {
        "split": split,
        "schedule": Schedule(len(split), BATCH, 2.0),
        "seed": 5,
        "rank": 0,
        "world_size": 1,
        "micro_batch_size": BATCH,
    }
    return BatchPlan(**values | changes)


def full_step(plan: BatchPlan) -> int:
    """The first step whose batch is not the short one."""
    return next(step for step in range(plan.schedule.total_steps) if plan.share(step).batch_samples == BATCH)


def chosen(share: Share) -> list[int]:
    return [int(sample) for part in share.micro_batches for sample in part]


@pytest.fixture
def split(split_of: Callable[..., Split], skewed: Callable[..., Indices]) -> Split:
    return split_of(skewed(20).tolist())


@pytest.mark.parametrize("world_size", WORLDS)
def test_shares_of_all_ranks_make_up_the_batch_of_the_step(split: Split, world_size: int) -> None:
    plans = [plan(split, rank=rank, world_size=world_size, micro_batch_size=2) for rank in range(world_size)]
    for step in range(plans[0].schedule.total_steps):
        epoch, position = plans[0].schedule.locate(step)
        batch = plan_epoch(split.lengths, BATCH, seed=5, epoch=epoch)[position]
        shares = [each.share(step) for each in plans]
        assert sorted(sample for share in shares if share.samples for sample in chosen(share)) == sorted(batch)
        assert sum(share.samples for share in shares) == len(batch)
        assert sum(share.tokens for share in shares) == split.lengths[batch].sum()
        assert {share.batch_samples for share in shares} == {len(batch)}


def test_a_rank_without_samples_borrows_one_that_does_not_count(split: Split) -> None:
    step = full_step(plan(split))
    shares = [plan(split, rank=rank, world_size=8).share(step) for rank in range(8)]
    borrowers = [share for share in shares if share.samples == 0]
    owned = {sample for share in shares if share.samples for sample in chosen(share)}
    assert len(borrowers) == 2
    for share in borrowers:
        assert len(chosen(share)) == 1
        assert owned.issuperset(chosen(share))
        assert (share.tokens, share.padded_tokens, share.batch_samples) == (0, 0, BATCH)


@pytest.mark.parametrize(("micro_batch_size", "sizes"), [(1, [1] * 6), (2, [2, 2, 2]), (4, [3, 3]), (6, [6])])
def test_a_share_is_cut_into_micro_batches(split: Split, micro_batch_size: int, sizes: list[int]) -> None:
    cut = plan(split, micro_batch_size=micro_batch_size)
    share = cut.share(full_step(cut))
    assert [len(part) for part in share.micro_batches] == sizes
    assert share.samples == BATCH


def test_padding_is_counted_as_micro_batches_are_padded(split: Split) -> None:
    share = plan(split, micro_batch_size=2).share(1)
    assert share.padded_tokens == sum(split.batch(part, pad_token=0).padded_tokens for part in share.micro_batches)
    assert share.tokens == split.lengths[chosen(share)].sum()


def test_a_step_is_the_same_whether_reached_or_jumped_to(split: Split) -> None:
    walked = plan(split)
    steps = [chosen(walked.share(step)) for step in range(walked.schedule.total_steps)]
    assert [chosen(plan(split).share(step)) for step in range(len(steps))] == steps
    assert chosen(walked.share(0)) == steps[0]
    assert np.unique(np.concatenate([np.array(step) for step in steps[4:]])).tolist() == list(range(20))
