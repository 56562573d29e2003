"""Where a job stands, from its first node to its end, as the operator gets to read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from cpufinetune.errors import AttemptError, ExitCode, JobError
from cpufinetune.job.problems import InvalidJob, Problem
from cpufinetune.job.schema import structural_schema, to_json_schema
from cpufinetune.launch.gang import AttemptRecord, Finish, Gang, State
from cpufinetune.launch.recorder import Recorder
from cpufinetune.launch.standing import Standing, failed_early
from cpufinetune.report.console import SilentConsole
from cpufinetune.report.events import Phase, Result, Setup, Step, encode
from cpufinetune.report.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.launch.cause import Cause

SCHEMA = Draft202012Validator(to_json_schema(structural_schema()["properties"]["status"]))
PARTS = ("attempt", "restarts", "progress", "layout", "ranks")
NOW = 1_700_000_000.0
FACTS = {"threads": 4, "cores": 4, "isa": ["AVX2"], "pinned": True}


def check(document: dict[str, Any]) -> dict[str, Any]:
    """Check what of a document is the CRD's against the CRD; return it as JSON gives it back."""
    read: dict[str, Any] = json.loads(json.dumps(document, allow_nan=False))
    parts = {key: read[key] for key in (*PARTS, "result") if read.get(key) is not None}
    SCHEMA.validate(parts)
    if read["failure"] is not None:
        assert set(read["failure"]) == {"reason", "message", "fix"}
    return read


@pytest.fixture
def standing() -> Standing:
    """A job of two nodes of which nothing is known yet."""
    recorder = Recorder(
        progress=Progress(clock=lambda: NOW),
        console=SilentConsole(),
        output=Path("/output/mrpc"),
        nodes=2,
        title="mrpc",
        job_document={},
        machine={},
        versions={},
    )
    gang = Gang(2, 6)
    return Standing(uid="u", set_name="mrpc", ranks=1, output_root=Path("/output"), gang=gang, recorder=recorder)


def hear(standing: Standing, *events: Any) -> None:
    for event in events:
        standing.recorder.heard(encode(event).decode())


def gather(standing: Standing) -> None:
    for node in (0, 1):
        standing.recorder.joined(node, [f"rank 0: core {node}"], [], FACTS)
        standing.gang.ready(node)


def begin(standing: Standing, attempt: int = 1) -> None:
    """Let rank 0 get as far as its first step."""
    step: dict[str, Any] = {"epoch": 0.1, "loss": 1.5, "learning_rate": 1e-5, "grad_norm": 1.0, "samples": 8}
    times: dict[str, Any] = {"seconds": 1.0, "communication_seconds": 0.5, "cpu_seconds": 2.0}
    choices: dict[str, Any] = {"world_size": 2, "total_steps": 9, "backend": "gloo", "backend_reason": "", "model": "m"}
    sizes: dict[str, Any] = {"parameters": 1, "trainable_parameters": 1, "train_samples": 8, "validation_samples": 0}
    hear(
        standing,
        Phase(rank=0, name="Load", attempt=attempt, time=NOW),
        Setup(
            rank=0, time=NOW, precision="Float32", precision_reason="", resumed_from_step=None, test_samples=0,
            **choices, **sizes,
        ),
        Phase(rank=0, name="Train", attempt=attempt, time=NOW),
        Step(rank=0, time=NOW, step=1, tokens=90, padded_tokens=99, **step, **times),
    )  # fmt: skip


def test_it_goes_from_preparing_over_restarting_to_finished(standing: Standing, cause: Callable[..., Cause]) -> None:
    found = check(standing.report())
    assert (found["schema"], found["uid"], found["state"], found["nodes"]) == (1, "u", "Preparing", [])
    gather(standing)
    found = check(standing.report())
    assert found["state"] == "Preparing"
    assert found["nodes"] == [{"node": node, "layout": [f"rank 0: core {node}"]} for node in (0, 1)]
    begin(standing)
    found = check(standing.report())
    assert (found["state"], found["failure"], found["ranks"], found["attempt"]) == ("Training", None, [], 1)
    assert found["progress"]["step"] == 1
    assert found["layout"]["backend"] == "gloo"

    standing.gang.ended(1, cause("Signal", 1, rank=1, code=137, message="SIGKILL"))
    standing.gang.ended(0, cause("Stopped", 0))
    found = check(standing.report())
    assert (found["state"], found["restarts"], found["attempt"]) == ("Restarting", 1, 2)
    assert found["failure"] == {"reason": "Killed", "message": "rank 1 on node 1: SIGKILL", "fix": ""}
    assert found["ranks"][0]["node"] == "mrpc-1"
    assert found["ranks"][0]["lastExit"]["code"] == 137

    begin(standing, attempt=2)
    assert standing.state() == "Training"
    for node in (0, 1):
        standing.gang.done(node)
    assert (standing.gang.state, standing.state()) == (State.FINISHED, "Finished")


def test_a_job_that_is_complete_has_a_result(standing: Standing) -> None:
    gather(standing)
    begin(standing)
    values: dict[str, Any] = {"metrics": {"accuracy": 0.5, "loss": float("nan")}, "checksum": "sha256:0", "bytes": 9}
    hear(standing, Result(rank=0, time=NOW, path="/output/mrpc/model", steps=9, **values))
    assert check(standing.report())["result"] is None, "others may still fail"
    found = check(standing.message(Finish(ExitCode.OK, None)))
    assert (found["code"], found["failure"]) == (0, None)
    assert found["result"] == {"path": "mrpc/model", "metrics": {"accuracy": 0.5}, "checksum": "sha256:0", "bytes": 9}
    assert check(standing.message(Finish(ExitCode.INTERRUPTED, None)))["result"] is None


@pytest.mark.parametrize(
    ("code", "told"),
    [(ExitCode.GAVE_UP, True), (ExitCode.BAD_INPUT, True), (ExitCode.RETRY, True), (ExitCode.INTERRUPTED, False)],
)
def test_a_job_that_failed_says_why(
    standing: Standing, cause: Callable[..., Cause], code: ExitCode, *, told: bool
) -> None:
    why = cause("Permanent", 1, rank=-1, message="no column 'x'", fix="did you mean 'y'?")
    standing.gang.records.append(AttemptRecord(1, (why,)))
    found = check(standing.message(Finish(code, why)))
    assert found["code"] == code
    wanted = {"reason": "MissingColumn", "message": "preparation on node 1: no column 'x'", "fix": "did you mean 'y'?"}
    assert found["failure"] == (wanted if told else None)


def test_prometheus_reads_what_the_gang_counts(standing: Standing) -> None:
    standing.gang.failures, standing.gang.attempt = 2, 5
    text = standing.metrics()
    assert "cpufinetune_restarts_total 2\n" in text
    assert "cpufinetune_attempt 5\n" in text


def test_pages_are_what_the_operator_asks_for(standing: Standing) -> None:
    pages = standing.pages()
    assert json.loads(pages["/report"][1]()) == json.loads(json.dumps(standing.report()))
    assert pages["/healthz"][1]() == "ok\n"
    assert set(pages) == {"/report", "/metrics", "/healthz"}


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (JobError("OutputBusy", "in use", "use another"), ("OutputBusy", "in use", "use another")),
        (AttemptError("PeersMissing", "no address"), ("PeersMissing", "no address", "")),
        (KeyError("x"), ("KeyError", "'x'", "")),
        (TimeoutError(), ("TimeoutError", "no message", "")),
        (
            InvalidJob([Problem("spec.nodes", 0, "too few", "write 1"), Problem("spec.x", None, "unknown", "go")]),
            ("InvalidJob", "spec.nodes: too few (found 0); write 1; spec.x: unknown; go", "correct the document"),
        ),
    ],
)  # fmt: skip
def test_what_ends_before_there_is_a_gang_says_why(error: Exception, failure: tuple[str, str, str]) -> None:
    found = check(failed_early("u", ExitCode.BAD_INPUT, error))
    assert (found["schema"], found["uid"], found["code"], found["result"]) == (1, "u", 2, None)
    assert tuple(found["failure"].values()) == failure


def test_a_log_of_events_without_ranks_has_no_attempt(standing: Standing, tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.write_bytes(encode(Phase(rank=-1, name="Prepare", attempt=0, time=NOW)))
    assert standing.recorder.replay(log) == 0
    log.write_bytes(encode(Phase(rank=0, name="Join", attempt=3, time=NOW)))
    assert standing.recorder.replay(log) == 3
