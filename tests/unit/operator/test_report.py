"""Foreign words: whatever a pod says, the status stays within its schema."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from cpufinetune.job.schema import to_json_schema
from cpufinetune_operator.model import Report
from cpufinetune_operator.plan import decide, fit, report

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

STATUS = Draft202012Validator(to_json_schema(fit.status_schema()))
GARBLED = {
    "nothing": b"",
    "no JSON": b"<html>",
    "no UTF-8": b"\xff\xfe{}",
    "no object": b"[1, 2]",
    "depth without end": b"[" * 100_000,
    "a number without end": b'{"schema": ' + b"9" * 5000 + b"}",
    "another schema": b'{"schema": 2, "uid": "11111111-2222-3333-4444-555555555555"}',
    "another job": b'{"schema": 1, "uid": "other"}',
}


@pytest.mark.parametrize("text", GARBLED.values(), ids=GARBLED)
def test_no_report_is_read_from(text: bytes, make: Make) -> None:
    assert report.read(text, make.uid) is None


LINE = "z" * 10_000
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "what is right": (
        {"state": "Training", "attempt": 2, "progress": {"step": 3, "loss": 0.5}},
        {"state": "Training", "attempt": 2, "progress": {"step": 3, "loss": 0.5}},
    ),
    "no state that there is": ({"state": ["Training"]}, {"state": ""}),
    "numbers out of bounds": (
        {"attempt": -3, "restarts": 10**30, "progress": {"step": -5, "metric": 7, "etaSeconds": 1e30}},
        {"attempt": 0, "restarts": 2**31 - 1, "progress": {"step": 0, "metric": 1.0, "etaSeconds": 2**63 - 1}},
    ),
    "numbers that are none": (
        {"attempt": True, "progress": {"loss": float("nan"), "epoch": float("inf"), "step": "4"}},
        {"attempt": None, "progress": {}},
    ),
    "a fraction of a step": ({"progress": {"step": 2.7}}, {"progress": {"step": 2}}),
    "a time that is none": (
        {"progress": {"lastHeartbeatTime": "yesterday"}},
        {"progress": {}},
    ),
    "a time of another zone": (
        {"progress": {"lastHeartbeatTime": "2026-01-01T02:00:00+02:00"}},
        {"progress": {"lastHeartbeatTime": "2026-01-01T00:00:00Z"}},
    ),
    "the end of the calendar": ({"progress": {"lastHeartbeatTime": "0001-01-01T00:00:00+10:00"}}, {"progress": {}}),
    "texts that are too long": ({"layout": {"backend": LINE}}, {"layout": {"backend": "z" * 32}}),
    "colours for a terminal": ({"layout": {"isa": "\x1b[31mavx\x00"}}, {"layout": {"isa": " [31mavx "}}),
    "fields that nobody knows": ({"layout": {"evil": {}, "ranks": 2}}, {"layout": {"ranks": 2}}),
    "half a surrogate": ({"layout": {"isa": "\ud800"}}, {"layout": {"isa": "?"}}),
    "a rank twice, and none": (
        {"ranks": [{"rank": 1}, {"rank": 1, "node": "b"}, {"node": "a"}, 5, {"rank": "x"}]},
        {"ranks": ({"rank": 1},)},
    ),
    "something else than a list": ({"ranks": {"rank": 1}}, {"ranks": ()}),
    "a failure without a reason": ({"failure": {"message": "m"}}, {"failure": ("TrainingFailed", "m")}),
    "a failure with a sentence for a reason": (
        {"failure": {"reason": "not ok!", "message": "m\n", "fix": "f"}},
        {"failure": ("TrainingFailed", "m; f")},
    ),
    "an exit code that is none": ({"code": 4096}, {"code": None}),
}


@pytest.mark.parametrize(("said", "expected"), FIELDS.values(), ids=FIELDS)
def test_of_a_report_is_read(said: dict[str, Any], expected: dict[str, Any], make: Make) -> None:
    read = report.read(json.dumps({"schema": 1, "uid": make.uid, **said}), make.uid)
    assert read is not None
    assert {key: getattr(read, key) for key in expected} == expected


def test_many_ranks_with_much_to_say_fit_into_one_object(make: Make) -> None:
    ranks = [{"rank": number, "lastExit": {"message": LINE, "code": 1}} for number in range(1000)]
    read = report.read(json.dumps({"schema": 1, "uid": make.uid, "ranks": ranks}), make.uid)
    assert read is not None
    assert len(read.ranks) == 256
    assert len(json.dumps(read.ranks)) < 200_000


def anything(draw: random.Random, depth: int = 0) -> Any:
    """Some JSON, more often with the keys of a report than not."""
    keys = ["step", "loss", "rank", "lastExit", "message", "time", "ranks", "metrics", "path", "code", "reason", "x"]
    simple = [None, True, -1, 0, 3, 2.5, 1e308, float("nan"), float("inf"), 10**40, "", "ok", "\x00\ud800é", LINE]
    kind = draw.random()
    if depth > 3 or kind < 0.5:
        return draw.choice(simple)
    if kind < 0.7:
        return [anything(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(keys): anything(draw, depth + 1) for _ in range(draw.randrange(6))}


def hostile(draw: random.Random, uid: str) -> str:
    names = ("state", "code", "attempt", "restarts", "progress", "layout", "ranks", "result", "failure")
    return json.dumps({"schema": 1, "uid": uid, **{name: anything(draw) for name in names if draw.random() < 0.8}})


@pytest.mark.parametrize("seed", range(300))
def test_no_report_breaks_the_status(seed: int, make: Make) -> None:
    draw = random.Random(seed)  # noqa: S311 - for a test
    read = report.read(hostile(draw, make.uid), make.uid)
    pod = make.pod(exit=make.exit(draw.choice([0, 1, 2, 137]), hostile(draw, make.uid)))
    fields: dict[str, Any] = {"report": read, "polling": True, "pods": (draw.choice([pod, make.pod()]),)}
    plan = decide.decide(make.active("runPolicy.backoffLimit=1000", **fields), make.settings)
    if plan.status is not None:
        text = json.dumps(plan.status, allow_nan=False)
        assert list(STATUS.iter_errors(json.loads(text))) == []
        assert len(text) < 500_000


def test_a_report_of_nothing_says_nothing(make: Make) -> None:
    assert report.read(make.word(), make.uid) == Report()


LOGS = {"an empty log": ("", ""), "blank ends": ("a\nb\n\n  \n", "b"), "one line": ("  x  y ", "x y")}


@pytest.mark.parametrize(("log", "expected"), LOGS.values(), ids=LOGS)
def test_the_last_line_of(log: str, expected: str) -> None:
    assert report.last_line(log) == expected
