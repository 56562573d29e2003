"""The parts of a status: what the CRD's schema takes, and only what is known."""

from __future__ import annotations

import json
import math
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from cpufinetune.job.schema import structural_schema, to_json_schema
from cpufinetune.report import Result, status

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA = to_json_schema(structural_schema()["properties"]["status"])
FACTS = {"threads": 4, "cores": 8, "isa": ["AMX_BF16", "AVX2", "AVX512F", "VNNI"], "pinned": True}
ROOT = PurePosixPath("/output")


def check(**parts: Any) -> None:
    """Check parts of a status against the CRD, as strict JSON."""
    document = json.loads(json.dumps(parts, allow_nan=False))
    Draft202012Validator(SCHEMA, format_checker=FormatChecker()).validate(document)


def cause(kind: str = "Signal", node: int = 1, rank: int | None = 1, **changes: Any) -> dict[str, Any]:
    values = {"kind": kind, "node": node, "rank": rank, "time": 1_700_000_000.0, "reason": "Killed"}
    return {**values, "message": "SIGKILL", "code": 137, "fix": "", **changes}


def result(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "path": "/output/mrpc/model",
        "metrics": {"accuracy": 0.8125, "loss": 0.4},
        "checksum": f"sha256:{'0' * 64}",
        "bytes": 268_435_456,
    }
    return Result(rank=0, time=0.0, steps=9, **values | changes)


def name_of(node: int) -> str:
    return f"mrpc-{node}"


def test_a_run_that_has_not_begun_has_a_step_and_nothing_else(run: Any) -> None:
    found = status.progress_status(run.progress)
    assert found == {"step": 0}
    check(progress=found, layout=status.layout_status([], None, None), ranks=[], attempt=0, restarts=0)


def test_a_run_on_its_way_has_all_fields(run: Any) -> None:
    run.begin()
    run.train(1, 20, loss=2 / 3)
    run.evaluate(20)
    run.train(21, 30, loss=2 / 3)
    found = status.progress_status(run.progress)
    check(progress=found)
    assert set(found) == set(SCHEMA["properties"]["progress"]["properties"])
    assert found["loss"] == 0.666667
    assert (found["step"], found["totalSteps"], found["metric"], found["epoch"]) == (30, 100, 0.75, 0.3)


def test_a_test_at_the_end_does_not_pass_for_the_validation(run: Any) -> None:
    run.begin()
    run.train(1, 10)
    run.evaluate(10, metrics={"accuracy": 0.75})
    run.evaluate(10, metrics={"accuracy": 0.5}, split="test")
    assert status.progress_status(run.progress)["metric"] == 0.75


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_left_out(run: Any, loss: float) -> None:
    run.begin()
    run.train(1, 5)
    run.train(6, 6, loss=loss)
    run.evaluate(6, metrics={"accuracy": loss})
    found = status.progress_status(run.progress)
    check(progress=found)
    assert not {"loss", "metric"} & set(found)
    run.train(7, 7, loss=1.0)
    assert status.progress_status(run.progress)["loss"] == 1.0


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param([], {}, id="no node is known"),
        pytest.param([FACTS], {"threads": 4, "cores": 8, "isa": "AMX_BF16", "pinned": True}, id="one node"),
        pytest.param(
            [FACTS, {**FACTS, "threads": 3, "cores": 6, "isa": ["AVX2", "AVX512F"], "pinned": False}],
            {"threads": 3, "cores": 6, "isa": "AVX512F", "pinned": False}, id="what all nodes have",
        ),
        pytest.param([{**FACTS, "isa": []}], {"threads": 4, "cores": 8, "pinned": True}, id="an old CPU"),
    ],
)  # fmt: skip
def test_the_layout_is_what_all_nodes_have(facts: list[Mapping[str, Any]], expected: dict[str, Any]) -> None:
    found = status.layout_status(facts, 2, None)
    check(layout=found)
    assert found == {"ranks": 2, **expected}


def test_the_layout_names_backend_and_precision(run: Any) -> None:
    run.begin(backend="gloo" * 20)
    found = status.layout_status([FACTS], 1, run.progress.setup)
    check(layout=found)
    assert found["backend"].startswith("gloo")
    assert found["precision"] == "Float32"


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        pytest.param([], {}, id="nobody ended"),
        pytest.param([cause(), cause("Stopped", 0, None)], {1: "Killed"}, id="those that were stopped do not count"),
        pytest.param([cause(reason="Stalled"), cause()], {1: "Killed"}, id="the last exit counts"),
        pytest.param(
            [cause("NodeLost", 1, None, reason="NodeLost", code=None)], {2: "NodeLost", 3: "NodeLost"},
            id="a node takes its ranks along",
        ),
        pytest.param([cause(rank=-1)], {}, id="a preparation has no rank"),
        pytest.param([cause("Permanent", 1, None)], {}, id="nor has what is wrong with a node"),
        pytest.param([cause(reason="_Odd Error!_")], {1: "OddError"}, id="any exception has a name for a condition"),
    ],
)  # fmt: skip
def test_ranks_are_listed_with_their_last_exit(causes: list[dict[str, Any]], expected: dict[int, str]) -> None:
    found = status.ranks_status(causes, 2, name_of)
    check(ranks=found)
    assert {one["rank"]: one["lastExit"]["reason"] for one in found} == expected
    assert all(one["node"] == "mrpc-1" for one in found)


def test_of_many_ranks_the_last_ones_are_listed() -> None:
    causes = [cause(rank=rank, message="x" * 5000) for rank in reversed(range(1000))]
    found = status.ranks_status(causes, 1, name_of)
    check(ranks=found)
    assert [one["rank"] for one in found] == list(range(status.MOST_RANKS))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, "mrpc/model"),
        ({"path": "/output/model"}, "model"),
        pytest.param({"path": "/elsewhere/model"}, "/elsewhere/model", id="not below the root"),
    ],
)
def test_the_result_is_named_below_the_root(changes: dict[str, Any], path: str) -> None:
    found = status.result_status(result(**changes), ROOT)
    check(result=found)
    assert found == {
        "path": path,
        "metrics": {"accuracy": 0.8125, "loss": 0.4},
        "checksum": f"sha256:{'0' * 64}",
        "bytes": 268_435_456,
    }


def test_metrics_that_are_no_numbers_or_too_many_are_left_out() -> None:
    metrics = {"loss": math.nan, "worse": -1.0, **{f"class{number}": 0.5 for number in range(100)}}
    found = status.result_status(result(metrics=metrics), ROOT)
    check(result=found)
    assert list(found["metrics"]) == [f"class{number}" for number in range(status.MOST_METRICS)]


def test_a_failure_is_what_a_condition_can_say() -> None:
    conditions = SCHEMA["properties"]["conditions"]["items"]["properties"]
    for reason in ("MissingColumn", "_x", "9Lives", "", "Ünder", "a.b", "Killed_"):
        found = status.failure_status(reason, "m" * 9999, "fix")
        Draft202012Validator(conditions["reason"]).validate(found["reason"])
        Draft202012Validator(conditions["message"]).validate(found["message"])
