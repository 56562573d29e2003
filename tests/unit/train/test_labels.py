from __future__ import annotations

from typing import Any

import pytest

from cpufinetune.errors import JobError
from cpufinetune.train.data.labels import Labels, learn, normal, rows

SOURCE = "data/train.csv"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "1"),
        (False, "0"),
        (7, "7"),
        (-1, "-1"),
        ("7", "7"),
        (" 7 ", "7"),
        ("007", "7"),
        ("+1", "1"),
        ("-1", "-1"),
        ("not spam", "not spam"),
        ("  padded\t", "padded"),
        ("1.5", "1.5"),
        ("1e3", "1e3"),
        ("NA", "NA"),
    ],
)
def test_labels_of_any_source_read_alike(value: object, text: str) -> None:
    assert normal(value) == text


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        pytest.param(["b", "a", "b"], ("a", "b"), [1, 0, 1], id="text is sorted"),
        pytest.param(["é", "z", "B", "a"], ("B", "a", "z", "é"), [3, 2, 0, 1], id="by code point"),
        pytest.param([10, 2, 1], ("1", "2", "10"), [2, 1, 0], id="integers are sorted by value"),
        pytest.param(["10", "9", "-1"], ("-1", "9", "10"), [2, 1, 0], id="as integers in text are"),
        pytest.param([True, False], ("0", "1"), [1, 0], id="booleans are 0 and 1"),
        pytest.param([1.0, 0.0, 1.0], ("0", "1"), [1, 0, 1], id="whole floats are integers"),
        pytest.param([" a", "a ", "b"], ("a", "b"), [0, 0, 1], id="spaces around do not count"),
        pytest.param(["01", "1", "2"], ("1", "2"), [0, 0, 1], id="leading zeros do not count"),
    ],
)
def test_classes_are_learnt_and_numbered(values: list[Any], names: tuple[str, ...], numbers: list[int]) -> None:
    labels = learn(SOURCE, "label", values)
    assert labels.names == names
    assert labels.encode(SOURCE, values) == numbers


@pytest.mark.parametrize(
    ("values", "reason", "message"),
    [
        pytest.param(["a", None, "b"], "EmptyLabel", "column 'label' is empty in row 2 ", id="a gap"),
        pytest.param(["a", "", "  ", "b"], "EmptyLabel", "column 'label' is empty in row 2, 3 ", id="blanks"),
        pytest.param(["a", *[""] * 9], "EmptyLabel", "is empty in row 2, 3, 4 and 6 more ", id="the first of many"),
        pytest.param([0.0, 0.5, 1.0], "BadLabel", "column 'label' holds fractions in row 2 ", id="a fraction"),
        pytest.param(
            ["a", "b", "3", "c"], "MixedLabels",
            "column 'label' mixes integers and text: row 3 ('3') holds integers, the others text ",
            id="a number among text",
        ),
        pytest.param(
            [1, 0, "spam", 1], "MixedLabels",
            "column 'label' mixes integers and text: row 3 ('spam') holds text, the others integers ",
            id="text among numbers",
        ),
        pytest.param(
            ["1", "2", "3", "4", "5", *"abcdef"], "MixedLabels", "row 1, 2, 3 and 2 more ('1') holds integers",
            id="the smaller part is the odd one",
        ),
        pytest.param(["a", "a "], "OneClass", "column 'label' has one class only, 'a' ", id="one class"),
    ],
)  # fmt: skip
def test_bad_labels_are_named_with_file_column_and_rows(values: list[Any], reason: str, message: str) -> None:
    with pytest.raises(JobError) as caught:
        learn(SOURCE, "label", values)
    assert caught.value.reason == reason
    assert str(caught.value).startswith(f"{SOURCE}: ")
    assert message in str(caught.value)
    assert caught.value.fix


def test_a_label_without_training_rows_is_named_with_its_row() -> None:
    with pytest.raises(JobError) as caught:
        Labels(("ham", "spam")).encode("data/dev.csv", ["ham", "spam", "Spam"])
    assert caught.value.reason == "UnseenLabel"
    assert str(caught.value) == (
        "data/dev.csv: row 3 has label 'Spam', which no training row has (training data has 'ham', 'spam')"
    )


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([4], "4"), ([1, 2, 3], "1, 2, 3"), ([1, 2, 3, 9], "1, 2, 3 and 1 more"), (range(1, 100), "1, 2, 3 and 96 more")],
)
def test_few_rows_are_listed_and_many_counted(numbers: list[int], text: str) -> None:
    assert rows(numbers) == text
