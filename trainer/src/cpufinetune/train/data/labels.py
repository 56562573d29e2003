"""Classes: what the label column holds, and the numbers the model learns for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTEGER = re.compile(r"[+-]?\d+")
FEWEST_CLASSES = 2
EXAMPLES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Labels:
    """Class names in the order of their numbers: integers by value, strings by code point."""

    names: tuple[str, ...]

    def encode(self, source: str, values: Sequence[Any]) -> list[int]:
        """Number the labels of a split.

        Raises:
            JobError: a label that training data does not have, with its row.
        """
        numbers = {name: number for number, name in enumerate(self.names)}
        encoded = []
        for row, value in enumerate(values, 1):
            number = numbers.get(normal(value))
            if number is None:
                raise JobError(
                    "UnseenLabel",
                    f"{source}: row {row} has label '{value}', which no training row has",
                    f"training data has {', '.join(repr(name) for name in self.names[:20])}",
                )
            encoded.append(number)
        return encoded


def normal(value: Any) -> str:
    """Return the text of a label: booleans, integers and whole floats of any source read alike."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    text = str(value).strip()
    return str(int(text)) if INTEGER.fullmatch(text) else text


def learn(source: str, column: str, values: Sequence[Any]) -> Labels:
    """Find the classes of the training split.

    Raises:
        JobError: empty or mixed labels (with rows), or fewer than two classes.
    """
    empty = [row for row, value in enumerate(values, 1) if value is None or not str(value).strip()]
    if empty:
        raise JobError(
            "EmptyLabel", f"{source}: column '{column}' is empty in row {rows(empty)}", "label or remove these rows"
        )
    fractions = [row for row, value in enumerate(values, 1) if isinstance(value, float) and not value.is_integer()]
    if fractions:
        raise JobError(
            "BadLabel",
            f"{source}: column '{column}' holds fractions in row {rows(fractions)}",
            "classes are integers or text",
        )
    texts = [normal(value) for value in values]
    whole = [bool(INTEGER.fullmatch(text)) for text in texts]
    if any(whole) and not all(whole):
        minority = sum(whole) * 2 <= len(whole)
        odd = [row for row, is_whole in enumerate(whole, 1) if is_whole == minority]
        example = texts[odd[0] - 1]
        kinds = ("integers", "text") if minority else ("text", "integers")
        raise JobError(
            "MixedLabels",
            f"{source}: column '{column}' mixes integers and text: row {rows(odd)} ({example!r}) holds {kinds[0]}, "
            f"the others {kinds[1]}",
            "use one kind for all rows",
        )
    names = sorted(set(texts), key=int) if all(whole) else sorted(set(texts))
    if len(names) < FEWEST_CLASSES:
        raise JobError("OneClass", f"{source}: column '{column}' has one class only, '{names[0]}'", "add others")
    return Labels(tuple(names))


def rows(numbers: Sequence[int]) -> str:
    """Return row numbers for a message, the first few of many."""
    shown = ", ".join(str(number) for number in numbers[:EXAMPLES_SHOWN])
    return shown if len(numbers) <= EXAMPLES_SHOWN else f"{shown} and {len(numbers) - EXAMPLES_SHOWN} more"
