"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Status(StrEnum):
    """How bad it is: a note costs speed or room, a problem prevents training or makes it certainly wrong."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report; `cost` and `cure` are empty where all is well."""

    name: str
    status: Status
    value: str
    cost: str = ""
    cure: str = ""


def ok(name: str, value: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(name, Status.OK, value)


def note(name: str, value: str, cost: str, cure: str) -> Check:
    """Return a check that found what costs something."""
    return Check(name, Status.NOTE, value, cost, cure)


def problem(name: str, value: str, cost: str, cure: str) -> Check:
    """Return a check that found what must be cured."""
    return Check(name, Status.PROBLEM, value, cost, cure)


def healthy(checks: Iterable[Check]) -> bool:
    """Tell whether there is no problem; notes are allowed."""
    return all(check.status is not Status.PROBLEM for check in checks)
