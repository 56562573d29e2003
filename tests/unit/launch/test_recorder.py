from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cpufinetune.launch.recorder import open_events

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, b"new\n"), (b"", b"new\n"), (b"old\n", b"old\nnew\n"), (b"old\n{cut", b"old\n{cut\nnew\n")],
    ids=["no file", "an empty file", "whole lines", "a line that was cut short"],
)
def test_a_log_goes_on_on_a_line_of_its_own(tmp_path: Path, before: bytes | None, after: bytes) -> None:
    path = tmp_path / "events"
    if before is not None:
        path.write_bytes(before)
    with open_events(path) as log:
        log.write(b"new\n")
    assert path.read_bytes() == after


def test_a_log_may_be_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with open_events(path) as log:
            log.write(b"new\n")
        assert os.read(reader, 99) == b"new\n"
    finally:
        os.close(reader)
