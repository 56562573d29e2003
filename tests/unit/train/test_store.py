from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.train.data.store import Split


@pytest.mark.parametrize("segments", [pytest.param(True, id="with segments"), pytest.param(False, id="without")])
def test_a_split_survives_the_round_trip(split_of: Callable[..., Split], *, segments: bool) -> None:
    split = split_of([3, 1, 2], segments=segments)
    assert len(split) == 3
    assert split.lengths.tolist() == [3, 1, 2]
    assert split.tokens.tolist() == [0, 1, 2, 100, 200, 201]
    assert split.labels.tolist() == [0, 1, 2]
    assert (None if split.segments is None else split.segments.tolist()) == ([0, 1, 1, 1, 0, 1] if segments else None)


def test_types_on_disk_are_as_small_as_documented(split_of: Callable[..., Split]) -> None:
    split = split_of(segments=True)
    assert split.segments is not None
    types = [array.dtype for array in (split.tokens, split.offsets, split.labels, split.segments)]
    assert types == [np.int32, np.int64, np.int64, np.uint8]


def test_a_batch_is_padded_to_its_longest_sample(split_of: Callable[..., Split]) -> None:
    batch = split_of([3, 5, 2, 4], segments=True).batch(np.array([2, 0]), pad_token=9)
    assert batch.tokens.tolist() == [[200, 201, 9], [0, 1, 2]]
    assert batch.mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch.segments is not None
    assert batch.segments.tolist() == [[0, 1, 0], [0, 1, 1]]
    assert batch.labels.tolist() == [2, 0]
    assert batch.lengths.tolist() == [2, 3]
    assert batch.samples.tolist() == [2, 0]
    assert batch.padded_tokens == 6


def test_a_batch_is_what_embeddings_take(split_of: Callable[..., Split]) -> None:
    batch = split_of(segments=True).batch(np.array([1]), pad_token=0)
    assert batch.segments is not None
    assert {part.dtype for part in (batch.tokens, batch.mask, batch.segments, batch.labels)} == {torch.int64}


def test_a_batch_without_segments_has_none(split_of: Callable[..., Split]) -> None:
    assert split_of().batch(np.array([0, 1]), pad_token=0).segments is None


def test_padding_is_masked_even_where_it_equals_a_token(split_of: Callable[..., Split]) -> None:
    batch = split_of([1, 3]).batch(np.array([0, 1]), pad_token=0)
    assert batch.tokens[0].tolist() == [0, 0, 0]
    assert batch.mask[0].tolist() == [1, 0, 0]
