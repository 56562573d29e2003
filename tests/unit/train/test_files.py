from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from cpufinetune.errors import JobError
from cpufinetune.train.data.files import read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Read = dict[str, list[Any]]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    """Writes `data` to a file and reads its columns."""

    def build(name: str, data: bytes | pa.Table | None, columns: Sequence[str] = ("text", "label")) -> Read:
        path = tmp_path / name
        if isinstance(data, bytes):
            path.write_bytes(data)
        elif data is not None:
            parquet.write_table(data, path)
        table = read_file(path, columns, tmp_path / "cache")
        assert list(table) == list(columns)
        return table

    return build


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        pytest.param("a.csv", b"text,label\na,0\nb,1\n", {"text": ["a", "b"], "label": ["0", "1"]}, id="csv"),
        pytest.param(
            "a.csv", b'text,label\n"say ""hi"", they said",x\n', {"text": ['say "hi", they said'], "label": ["x"]},
            id="csv with quotes and commas inside",
        ),
        pytest.param(
            "a.csv", b'text,label\n"two\nlines",x\nb,y\n', {"text": ["two\nlines", "b"], "label": ["x", "y"]},
            id="csv cells over several lines",
        ),
        pytest.param(
            "a.csv", "\ufefftext,label\né,0\n".encode(), {"text": ["é"], "label": ["0"]},
            id="csv with a byte order mark",
        ),
        pytest.param("a.csv", b"text,label\r\na,0\r\n", {"text": ["a"], "label": ["0"]}, id="csv with CRLF"),
        pytest.param("a.csv", b"text,label\na,0", {"text": ["a"], "label": ["0"]}, id="csv without a last newline"),
        pytest.param(
            "a.csv", b"text,label\nNA,007\nnull,1.0\n,nan\n",
            {"text": ["NA", "null", ""], "label": ["007", "1.0", "nan"]},
            id="csv cells are no gaps and no numbers",
        ),
        pytest.param(
            "a.csv", b"id,label,text\n1,x,a\n2,y,b\n", {"text": ["a", "b"], "label": ["x", "y"]},
            id="csv with other columns, in another order",
        ),
        pytest.param(
            "a.csv", b"text,label\na,0\n\nb,1\n", {"text": ["a", "b"], "label": ["0", "1"]}, id="csv with a blank line"
        ),
        pytest.param(
            "a.csv", b'text,label\n"' + b"long " * 50_000 + b'",0\n', {"text": ["long " * 50_000], "label": ["0"]},
            id="csv cells longer than 128 KiB",
        ),
        pytest.param(
            "a.tsv", b'text\tlabel\n"half a quote\t0\na "b" c, d\tNA\n',
            {"text": ['"half a quote', 'a "b" c, d'], "label": ["0", "NA"]},
            id="tsv has no quoting",
        ),
        pytest.param(
            "a.jsonl", b'{"text": "a\\nb", "label": 1}\n{"label": 0, "text": "NA"}\n',
            {"text": ["a\nb", "NA"], "label": [1, 0]},
            id="jsonl",
        ),
        pytest.param(
            "a.jsonl", b'{"text": "2020-01-01", "label": "007"}\n', {"text": ["2020-01-01"], "label": ["007"]},
            id="jsonl strings stay strings, dates too",
        ),
        pytest.param(
            "a.jsonl", '\ufeff{"text": "a", "label": 1}\n'.encode(), {"text": ["a"], "label": [1]},
            id="jsonl with a byte order mark",
        ),
        pytest.param(
            "a.parquet", pa.table({"label": [1, 0], "text": ["a", "b"], "more": [1.5, 2.5]}),
            {"text": ["a", "b"], "label": [1, 0]},
            id="parquet",
        ),
    ],
)  # fmt: skip
def test_rows_are_read(read: Callable[..., Read], name: str, data: bytes | pa.Table, expected: Read) -> None:
    assert read(name, data) == expected


@pytest.mark.parametrize(
    ("name", "data", "reason", "message"),
    [
        pytest.param("none.csv", None, "FileNotFound", "no such file", id="a missing file"),
        pytest.param(
            "a.xlsx", b"PK", "UnknownFormat",
            "cannot read '.xlsx' files (use one of .csv, .tsv, .jsonl, .parquet)",
            id="an unknown suffix",
        ),
        pytest.param("a.csv", b"", "EmptyFile", "the file is empty", id="an empty csv"),
        pytest.param("a.jsonl", b"", "EmptyFile", "the file is empty", id="an empty jsonl"),
        pytest.param("a.csv", b"text,label\n", "EmptyFile", "the file has no rows", id="a csv of a header only"),
        pytest.param("a.jsonl", b"\n\n", "EmptyFile", "the file has no rows", id="a jsonl of blank lines only"),
        pytest.param(
            "a.parquet", pa.table({"text": pa.array([], pa.string()), "label": pa.array([], pa.int64())}), "EmptyFile",
            "the file has no rows", id="a parquet without rows",
        ),
        pytest.param(
            "a.csv", b"text,label\nok,1\nb\xe9ta,0\n", "NotUtf8",
            "line 3, byte 2 is not UTF-8 (0xe9) (convert the file",
            id="a csv in another encoding",
        ),
        pytest.param(
            "a.jsonl", b'{"text": "\xff"}\n', "NotUtf8", "line 1, byte 11 is not UTF-8 (0xff)",
            id="a jsonl in another encoding",
        ),
        pytest.param(
            "a.csv", b"text,label\na,0\nb, c,1\n", "MalformedFile",
            "row 2 (line 3) has 3 fields, the header has 2 (quote fields that hold the delimiter)",
            id="a csv row with a field too many",
        ),
        pytest.param(
            "a.csv", b'text,label\n"a\nb",0\nc\n', "MalformedFile", "row 2 (line 4) has 1 fields, the header has 2",
            id="a csv row with a field too few, after one of two lines",
        ),
        pytest.param(
            "a.csv", b"text,label\na,0\n\nb\n", "MalformedFile", "row 2 (line 4) has 1 fields",
            id="a csv row after a blank line, which is no row",
        ),
        pytest.param(
            "a.tsv", b"text\tlabel\na\tb\t0\n", "MalformedFile", "row 1 (line 2) has 3 fields, the header has 2 "
            "(remove tabs inside fields)", id="a tsv row with a tab too many",
        ),
        pytest.param("a.csv", b'text,label\na,"0\n', "MalformedFile", "EOF inside string", id="a quote left open"),
        pytest.param("a.jsonl", b'{"text": "a"\n', "MalformedFile", "JSON", id="broken jsonl"),
        pytest.param("a.parquet", b"PAR1 and no more", "MalformedFile", "arquet", id="a broken parquet"),
    ],
)  # fmt: skip
def test_bad_files_are_named_with_what_is_wrong_and_where(
    read: Callable[..., Read],
    tmp_path: Path,
    name: str,
    data: bytes | pa.Table | None,
    *,
    reason: str,
    message: str,
) -> None:
    with pytest.raises(JobError, match=re.escape(message)) as caught:
        read(name, data)
    assert caught.value.reason == reason
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert caught.value.fix


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("a.csv", b"sentence,label\na,0\n", id="csv"),
        pytest.param("a.tsv", b"sentence\tlabel\na\t0\n", id="tsv"),
        pytest.param("a.jsonl", b'{"sentence": "a", "label": 0}\n', id="jsonl"),
        pytest.param("a.parquet", pa.table({"sentence": ["a"], "label": [0]}), id="parquet"),
    ],
)
@pytest.mark.parametrize(
    ("column", "hint"),
    [
        pytest.param("sentense", "did you mean 'sentence'?", id="nearly right"),
        pytest.param("xyz", "it has 'sentence', 'label'", id="far off"),
    ],
)
def test_a_missing_column_comes_with_a_hint(
    read: Callable[..., Read], name: str, data: bytes | pa.Table, column: str, hint: str
) -> None:
    with pytest.raises(JobError) as caught:
        read(name, data, [column, "label"])
    assert caught.value.reason == "MissingColumn"
    assert caught.value.message.endswith(f"{name}: no column '{column}'")
    assert caught.value.fix == hint
