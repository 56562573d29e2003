from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.errors import ExitCode
from cpufinetune.launch.termination import LONGEST_MESSAGE, Ending, fit, publish, read_marker

if TYPE_CHECKING:
    from pathlib import Path

CUT = "…"


def document(ranks: int = 0, text: str = "", metrics: int = 0, code: int = 1) -> dict[str, Any]:
    """A last word of node 0, as large as asked for; the ranks with high numbers ended last."""
    exits = [
        {"rank": rank, "node": f"mrpc-{rank}", "lastExit": {"reason": "Killed", "message": text, "time": f"{rank:04}"}}
        for rank in range(ranks)
    ]
    return {
        "schema": 1,
        "uid": "u",
        "code": code,
        "attempt": 7,
        "restarts": 7,
        "progress": {"step": 100},
        "layout": {"ranks": 2},
        "ranks": exits,
        "result": {"path": "model", "metrics": {f"metric{number}": 0.5 for number in range(metrics)}},
        "failure": {"reason": "Killed", "message": text, "fix": text},
    }


def test_what_fits_is_left_alone() -> None:
    whole = document(ranks=4, text="short", metrics=3)
    assert json.loads(fit(whole)) == whole


@pytest.mark.parametrize(
    "text", ["x" * 10, "x" * 3000, "é" * 3000, '"' * 3000, "\x00" * 3000, "\udcff" * 3000, "𝄞" * 3000]
)
@pytest.mark.parametrize("ranks", [0, 3, 256])
@pytest.mark.parametrize("metrics", [0, 32])
def test_any_document_fits_as_json_and_keeps_what_matters(text: str, ranks: int, metrics: int) -> None:
    given = document(ranks, text, metrics)
    found = fit(given)
    assert len(found.encode()) <= LONGEST_MESSAGE
    read = json.loads(found)
    for key in ("schema", "uid", "code", "attempt", "restarts", "progress", "layout"):
        assert read[key] == given[key]
    assert read["failure"]["reason"] == "Killed"
    assert read["failure"]["message"]
    assert given == document(ranks, text, metrics), "the document itself is not changed"


def test_exits_are_shortened_before_the_failure_and_the_latest_ones_stay() -> None:
    read = json.loads(fit(document(ranks=100, text="x" * 300)))
    assert read["failure"]["message"] == "x" * 300
    assert [one["rank"] for one in read["ranks"]] == list(range(92, 100))
    assert all(one["lastExit"]["message"].endswith(CUT) for one in read["ranks"])


def test_what_cannot_fit_at_all_says_at_least_how_it_ended() -> None:
    assert json.loads(fit({**document(code=3), "layout": {"isa": "x" * 9999}})) == {"schema": 1, "uid": "u", "code": 3}


@pytest.mark.parametrize(
    ("code", "marked"),
    [
        *((code, True) for code in (ExitCode.OK, ExitCode.GAVE_UP, ExitCode.BAD_INPUT, ExitCode.DEADLINE)),
        *((code, False) for code in (ExitCode.RETRY, ExitCode.INTERRUPTED)),
    ],
)
def test_only_what_is_over_for_good_is_marked(tmp_path: Path, code: ExitCode, *, marked: bool) -> None:
    message, marker = tmp_path / "message", tmp_path / "scratch" / "finished.json"
    word = {"schema": 1, "uid": "u", "code": int(code), "node": 1}
    assert publish(Ending(code, word), message, marker) == []
    assert json.loads(message.read_text(encoding="utf-8")) == word
    assert read_marker(marker) == (word if marked else None)


def test_a_message_that_cannot_be_written_does_not_keep_the_marker_from_being(tmp_path: Path) -> None:
    marker = tmp_path / "finished.json"
    (warning,) = publish(Ending(ExitCode.OK, {"code": 0}), tmp_path / "none" / "message", marker)
    assert warning.startswith("warning: the termination message could not be written: ")
    assert read_marker(marker) == {"code": 0}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_marker_that_says_nothing_is_a_marker_still(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "marker").write_bytes(content)
    assert read_marker(tmp_path / "marker") == {}
