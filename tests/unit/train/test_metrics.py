from __future__ import annotations

import numpy as np
import pytest

from cpufinetune.train.tasks.metrics import confusion, measure


def test_rows_are_true_classes_and_columns_predictions() -> None:
    counts = confusion(np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 0, 0]), 3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 0], [2, 0, 0]]
    assert counts.dtype == np.int64


def test_confusions_of_ranks_add_up() -> None:
    labels, predictions = np.array([0, 1, 1, 0, 1]), np.array([1, 1, 0, 0, 1])
    parts = [confusion(labels[part], predictions[part], 2) for part in (slice(0, 2), slice(2, 5), slice(5, 5))]
    assert np.array_equal(sum(parts), confusion(labels, predictions, 2))


def test_small_integer_types_do_not_overflow() -> None:
    labels = np.array([199], dtype=np.uint8)
    assert confusion(labels, labels, 200)[199, 199] == 1


@pytest.mark.parametrize(
    ("counts", "positive", "expected"),
    [
        pytest.param(
            [[50, 10], [5, 35]], 1,
            {"accuracy": 0.85, "macroF1": (100 / 115 + 70 / 85) / 2, "f1": 70 / 85},
            id="two classes have F1 of the second",
        ),
        pytest.param(
            [[50, 10], [5, 35]], 0,
            {"accuracy": 0.85, "macroF1": (100 / 115 + 70 / 85) / 2, "f1": 100 / 115},
            id="or of the one that is positive",
        ),
        pytest.param(
            [[2, 1, 0], [0, 3, 0], [1, 0, 3]], 1,
            {"accuracy": 0.8, "macroF1": (4 / 6 + 6 / 7 + 6 / 7) / 3},
            id="three classes have no plain F1",
        ),
        pytest.param(
            [[4, 0, 0], [1, 3, 0], [0, 0, 0]], 1,
            {"accuracy": 7 / 8, "macroF1": (8 / 9 + 6 / 7) / 2},
            id="a class that nobody has or predicts is left out of the mean",
        ),
        pytest.param(
            [[4, 0, 1], [0, 3, 0], [0, 0, 0]], 1,
            {"accuracy": 7 / 8, "macroF1": (8 / 9 + 1.0 + 0.0) / 3},
            id="a class that is only predicted counts as zero",
        ),
        pytest.param(
            [[3, 0], [2, 0]], 1, {"accuracy": 0.6, "macroF1": 0.375, "f1": 0.0}, id="never predicted positive"
        ),
        pytest.param([[5, 0], [0, 0]], 1, {"accuracy": 1.0, "macroF1": 1.0, "f1": 0.0}, id="no positive anywhere"),
        pytest.param([[0, 0], [0, 0]], 1, {"accuracy": 0.0, "macroF1": 0.0, "f1": 0.0}, id="no samples at all"),
    ],
)  # fmt: skip
def test_metrics_are_those_worked_out_by_hand(
    counts: list[list[int]], positive: int, expected: dict[str, float]
) -> None:
    assert measure(np.array(counts), positive) == pytest.approx(expected)
