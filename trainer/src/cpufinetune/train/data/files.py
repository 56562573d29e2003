"""Rows of a dataset file as strings and numbers, with errors that name file, row and field.

Parsing is the `datasets` library's; what stands here are the checks that its errors leave unexplained.
"""

from __future__ import annotations

import csv
import difflib
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Longest cell in characters; the csv module stops at 128 KiB, documents may be longer.
LONGEST_CELL = 1 << 30
BUILDERS = {".csv": "csv", ".tsv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}


def read_file(path: Path, columns: Sequence[str], cache: Path) -> Any:
    """Read the named columns of one csv, tsv, jsonl or parquet file.

    csv follows RFC 4180 quoting; tsv has no quoting at all, as GLUE's files. csv and tsv cells stay text.

    Returns:
        A `datasets.Dataset` whose columns are exactly `columns`.

    Raises:
        JobError: file missing, empty, not UTF-8, malformed, or without a column.
    """
    if not path.is_file():
        raise JobError("FileNotFound", f"{path}: no such file", "correct spec.dataset.path or spec.dataset.files")
    builder = BUILDERS.get(path.suffix)
    if builder is None:
        raise JobError("UnknownFormat", f"{path}: cannot read '{path.suffix}' files", f"use one of {sorted(BUILDERS)}")
    if path.stat().st_size == 0:
        raise JobError("EmptyFile", f"{path}: the file is empty", "write the rows, or name another file")
    options: dict[str, Any] = {}
    if builder != "parquet":
        _check_utf8(path)
    if builder == "csv":
        delimiter = "\t" if path.suffix == ".tsv" else ","
        quoted = path.suffix != ".tsv"
        _check_table(path, columns, delimiter, quoted=quoted)
        options = {
            "sep": delimiter,
            "quoting": csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            "usecols": list(columns),
            "keep_default_na": False,
            "encoding": "utf-8-sig",
        }
    rows = _load(builder, path, cache, options)
    _check_columns(path, rows.column_names, columns)
    if len(rows) == 0:
        raise JobError("EmptyFile", f"{path}: the file has no rows", "write the rows, or name another file")
    return rows.select_columns(list(columns))


def _load(builder: str, path: Path, cache: Path, options: dict[str, Any]) -> Any:
    import datasets  # noqa: PLC0415 - slow to import, and only preparation needs it

    datasets.disable_progress_bars()
    if builder == "csv":
        # Cells stay text: "007" and "NA" are no numbers and no gaps.
        options["features"] = datasets.Features({name: datasets.Value("string") for name in options["usecols"]})
    try:
        return datasets.load_dataset(builder, data_files=str(path), split="train", cache_dir=str(cache), **options)
    except (datasets.exceptions.DatasetGenerationError, datasets.exceptions.DatasetsError, ValueError) as error:
        cause = error.__cause__ or error
        raise JobError("MalformedFile", f"{path}: {cause}", "correct the file") from error


def _check_utf8(path: Path) -> None:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise JobError(
                    "NotUtf8",
                    f"{path}: line {number}, byte {error.start + 1} is not UTF-8 (0x{line[error.start]:02x})",
                    "convert the file, for example with iconv -f WINDOWS-1252 -t UTF-8",
                ) from error


def _check_table(path: Path, columns: Sequence[str], delimiter: str, *, quoted: bool) -> None:
    csv.field_size_limit(LONGEST_CELL)
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        header = next(rows, [])
        _check_columns(path, header, columns)
        for number, row in enumerate(rows, 1):
            if row and len(row) != len(header):
                raise JobError(
                    "MalformedFile",
                    f"{path}: row {number} (line {rows.line_num}) has {len(row)} fields, the header has {len(header)}",
                    "quote fields that hold the delimiter" if quoted else "remove tabs inside fields",
                )


def _check_columns(path: Path, present: Sequence[str], wanted: Sequence[str]) -> None:
    for column in wanted:
        if column not in present:
            near = difflib.get_close_matches(column, present, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(repr(name) for name in present)}"
            raise JobError("MissingColumn", f"{path}: no column '{column}'", hint)
