from __future__ import annotations

import numpy as np
import pytest

from cpufinetune.train.data.sources import Rows, hold_out


def rows(count: int) -> Rows:
    return Rows(
        "train.csv", ([f"a{row}" for row in range(count)], [f"b{row}" for row in range(count)]), [*range(count)]
    )


@pytest.mark.parametrize(
    ("count", "fraction", "held"),
    [
        pytest.param(100, 0.1, 10, id="a tenth"),
        pytest.param(25, 0.1, 2, id="rounded to rows"),
        pytest.param(3, 0.01, 1, id="at least one row is held out"),
        pytest.param(2, 0.99, 1, id="at least one row is left to train on"),
        pytest.param(10, 0.5, 5, id="half"),
    ],
)
def test_validation_rows_are_taken_from_training_rows(count: int, fraction: float, held: int) -> None:
    train, validation = hold_out(rows(count), fraction, seed=1)
    assert (len(train.labels), len(validation.labels)) == (count - held, held)
    assert sorted([*train.labels, *validation.labels]) == list(range(count))
    assert (train.source, validation.source) == ("train.csv", "train.csv")


def test_rows_keep_their_texts_and_their_order() -> None:
    for part in hold_out(rows(50), 0.3, seed=1):
        assert part.labels == sorted(part.labels)
        assert part.texts == ([f"a{row}" for row in part.labels], [f"b{row}" for row in part.labels])


def test_the_seed_chooses_the_rows() -> None:
    chosen = [hold_out(rows(100), 0.2, seed=seed)[1].labels for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1]
    assert chosen[0] != chosen[2]


def test_every_row_is_as_likely_to_be_held_out() -> None:
    counts = np.zeros(10)
    for seed in range(400):
        counts[hold_out(rows(10), 0.3, seed=seed)[1].labels] += 1
    assert np.abs(counts - 120).max() < 5 * np.sqrt(400 * 0.3 * 0.7)
