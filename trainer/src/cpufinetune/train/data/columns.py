"""Formats and columns of dataset files."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from cpufinetune.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KINDS = (".csv", ".tsv", ".jsonl", ".parquet")


def check_columns(path: Path, present: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a file without a column that the task names.

    Raises:
        JobError: names the column, and the one that was perhaps meant.
    """
    for column in wanted:
        if column not in present:
            near = difflib.get_close_matches(column, present, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(repr(name) for name in present)}"
            raise JobError("MissingColumn", f"{path}: no column '{column}'", hint)
