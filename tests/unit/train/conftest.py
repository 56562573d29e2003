from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cpufinetune.train.data.store import Split, open_split, write_split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cpufinetune.train.data.batches import Indices


def _skewed(samples: int, *, seed: int = 7, shortest: int = 2, longest: int = 128) -> Indices:
    """Token counts as of real text: many short samples, few long ones."""
    drawn = np.random.default_rng(seed).lognormal(3.2, 0.6, samples)
    return np.clip(drawn.astype(np.int64), shortest, longest)


@pytest.fixture(scope="session")
def skewed() -> Callable[..., Indices]:
    return _skewed


@pytest.fixture
def split_of(tmp_path: Path) -> Callable[..., Split]:
    """Writes a split whose sample i has `lengths[i]` tokens 100 * i, 100 * i + 1, ... and label i % 3; opens it."""

    def build(lengths: Sequence[int] = (3, 5, 2, 4), *, segments: bool = False) -> Split:
        tokens = [100 * sample + np.arange(length, dtype=np.int32) for sample, length in enumerate(lengths)]
        types = [(np.arange(length) >= length // 2).astype(np.uint8) for length in lengths] if segments else None
        path = tmp_path / "split.safetensors"
        write_split(path, tokens, [sample % 3 for sample in range(len(lengths))], types)
        return open_split(path)

    return build
