from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cpufinetune.errors import ExitCode
from cpufinetune.launch.gang import AttemptRecord
from cpufinetune.launch.journal import Journal, Past

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cpufinetune.launch.cause import Cause

NOW = 1234.0


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "state" / "attempts")


@pytest.fixture
def record(cause: Callable[..., Cause]) -> Callable[..., AttemptRecord]:
    def make(attempt: int, kind: str = "Signal") -> AttemptRecord:
        return AttemptRecord(attempt, (cause(kind), cause("Stopped", 1)))

    return make


def test_without_a_file_there_is_no_past(journal: Journal) -> None:
    assert journal.read(0, NOW) == Past()


def test_a_life_that_ended_well_is_remembered_as_it_was(journal: Journal, record: Callable[..., AttemptRecord]) -> None:
    journal.begin(Past())
    journal.add(record(1), 1)
    journal.add(record(2, "Interrupted"), 1)
    journal.end(ExitCode.INTERRUPTED)
    assert journal.read(2, NOW) == Past((record(1), record(2, "Interrupted")), 1)


def test_a_life_without_an_end_was_killed_and_counts(journal: Journal, record: Callable[..., AttemptRecord]) -> None:
    journal.begin(Past())
    journal.add(record(1), 1)
    past = journal.read(2, NOW)
    assert past.failures == 2
    assert past.records[0] == record(1)
    (lost,) = past.records[1].causes
    assert (past.records[1].attempt, lost.kind, lost.node, lost.time) == (2, "NodeLost", 0, NOW)


def test_every_killed_life_counts_once(journal: Journal) -> None:
    for life in range(5):
        past = journal.read(0, NOW)
        assert past.failures == life == len(past.records)
        journal.begin(past)
    journal.end(ExitCode.GAVE_UP)
    assert journal.read(0, NOW).failures == 4


@pytest.mark.parametrize("torn", [b'{"attempt": 2, "cau', b"\xff\xfe\n", b"[1, 2]\n", b"null\n"])
def test_a_line_that_a_crash_cut_short_is_skipped(
    journal: Journal, record: Callable[..., AttemptRecord], torn: bytes
) -> None:
    journal.begin(Past())
    journal.add(record(1), 1)
    with journal.path.open("ab") as file:
        file.write(torn)
    past = journal.read(2, NOW)
    assert (past.failures, len(past.records)) == (2, 2)
    journal.begin(past)
    journal.end(ExitCode.INTERRUPTED)
    assert journal.read(2, NOW) == past


def test_a_folder_that_cannot_be_written_costs_the_count_and_not_the_run(
    tmp_path: Path, record: Callable[..., AttemptRecord]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    journal = Journal(tmp_path / "file" / "attempts")
    journal.begin(Past())
    journal.add(record(1), 1)
    journal.end(ExitCode.OK)
    assert journal.read(1, NOW) == Past()
