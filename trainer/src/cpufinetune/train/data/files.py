"""Rows of a dataset file as strings and numbers, with errors that name file, row and field.

Tables are parsed by the `datasets` library; what stands here are the checks that its errors leave unexplained.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import JobError
from cpufinetune.train.data.columns import KINDS, check_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Longest cell in characters; the csv module stops at 128 KiB, documents may be longer.
LONGEST_CELL = 1 << 30


def read_file(path: Path, columns: Sequence[str], cache: Path) -> dict[str, list[Any]]:
    """Read the named columns of one csv, tsv, jsonl or parquet file.

    csv follows RFC 4180 quoting; tsv has no quoting at all, as GLUE's files. csv and tsv cells stay text.

    Raises:
        JobError: file missing, empty, not UTF-8, malformed, or without a column.
    """
    if not path.is_file():
        raise JobError("FileNotFound", f"{path}: no such file", "correct spec.dataset.path or spec.dataset.files")
    if path.suffix not in KINDS:
        raise JobError("UnknownFormat", f"{path}: cannot read '{path.suffix}' files", f"use one of {', '.join(KINDS)}")
    if path.stat().st_size == 0:
        raise JobError("EmptyFile", f"{path}: the file is empty", "write the rows, or name another file")
    if path.suffix != ".parquet":
        _check_utf8(path)
    match path.suffix:
        case ".jsonl":
            return _read_jsonl(path, columns)
        case ".parquet":
            return _read_parquet(path, columns, cache)
        case _:
            return _read_table(path, columns, cache, quoted=path.suffix == ".csv")


def _read_table(path: Path, columns: Sequence[str], cache: Path, *, quoted: bool) -> dict[str, list[Any]]:
    delimiter = "," if quoted else "\t"
    _check_table(path, columns, delimiter, quoted=quoted)
    return _load(
        "csv",
        path,
        columns,
        cache,
        sep=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        usecols=list(columns),
        keep_default_na=False,
        encoding="utf-8-sig",
    )


def _read_parquet(path: Path, columns: Sequence[str], cache: Path) -> dict[str, list[Any]]:
    from pyarrow import ArrowInvalid, parquet  # noqa: PLC0415 - comes with `datasets`, as slow to import

    try:
        with parquet.ParquetFile(path) as file:
            names, rows = file.schema_arrow.names, file.metadata.num_rows
    except ArrowInvalid as error:
        raise JobError("MalformedFile", f"{path}: {error}", "correct the file") from error
    check_columns(path, names, columns)
    if rows == 0:
        raise _without_rows(path)
    return _load("parquet", path, columns, cache)


def _read_jsonl(path: Path, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Read objects, one a line. Libraries infer types over all rows: dates, say, out of what is text here."""
    found: dict[str, list[Any]] = {column: [] for column in columns}
    with path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise JobError("MalformedFile", f"{path}: line {number} is not JSON: {error}", "correct it") from error
            if not isinstance(row, dict):
                raise JobError("MalformedFile", f"{path}: line {number} is no object", 'write {"column": value, ...}')
            if not found[columns[0]]:
                check_columns(path, list(row), columns)
            for column in columns:
                found[column].append(row.get(column))
    if not found[columns[0]]:
        raise _without_rows(path)
    return found


def _without_rows(path: Path) -> JobError:
    return JobError("EmptyFile", f"{path}: the file has no rows", "write the rows, or name another file")


def _load(builder: str, path: Path, columns: Sequence[str], cache: Path, **options: Any) -> dict[str, list[Any]]:
    import datasets  # noqa: PLC0415 - slow to import, and only preparation needs it

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    if builder == "csv":
        # Cells stay text: "007" and "NA" are no numbers and no gaps.
        options["features"] = datasets.Features({name: datasets.Value("string") for name in columns})
    try:
        table = datasets.load_dataset(builder, data_files=str(path), split="train", cache_dir=str(cache), **options)
    except (datasets.exceptions.DatasetGenerationError, datasets.exceptions.DatasetsError, ValueError) as error:
        cause = error.__cause__ or error
        if isinstance(cause, OSError):
            # The volume of the cache, not the file.
            raise cause from error
        raise JobError("MalformedFile", f"{path}: {cause}", "correct the file") from error
    return {column: list(table[column]) for column in columns}


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
        header = next((row for row in rows if row), [])
        check_columns(path, header, columns)
        filled = (row for row in rows if row)
        number = 0
        for number, row in enumerate(filled, 1):
            if len(row) != len(header):
                raise JobError(
                    "MalformedFile",
                    f"{path}: row {number} (line {rows.line_num}) has {len(row)} fields, the header has {len(header)}",
                    "quote fields that hold the delimiter" if quoted else "remove tabs inside fields",
                )
        if number == 0:
            raise _without_rows(path)
