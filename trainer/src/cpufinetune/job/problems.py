"""What can be wrong with a job document, in the words that the user gets to read."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def _shortened() -> reprlib.Repr:
    """A `repr` that stays on one line whatever the user wrote."""
    short = reprlib.Repr()
    short.maxstring = 80
    short.maxother = 80
    short.maxlevel = 2
    return short


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where (`spec.task.text[0]` or `file:line`), what was found, what is wrong, what to do."""

    path: str
    value: object
    message: str
    fix: str

    def __str__(self) -> str:
        found = "" if self.value is None else f" (found {_shortened().repr(self.value)})"
        return " ".join(f"{self.path}: {self.message}{found}; {self.fix}".split())


class InvalidJob(ValueError):  # noqa: N818 - it names the finding, as the document's user would
    """A document that is no valid job; `problems` holds all that is wrong with it, at least one."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def spell_path(parts: Iterable[str | int]) -> str:
    """`("spec", "text", 0)` as `spec.text[0]`; a key with dots is put in brackets."""
    spelt = ""
    for part in parts:
        if isinstance(part, int):
            spelt += f"[{part}]"
        elif "." in part:
            spelt += f"[{part!r}]"
        else:
            spelt += f".{part}" if spelt else part
    return spelt or "document"
