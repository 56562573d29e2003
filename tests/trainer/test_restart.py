"""What happens when ranks, launchers or patience die: the run recovers, and the result is the same to the bit."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from localcluster.process import lives

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RESTART_GOAL = 5.0  # seconds from SIGKILL to the next step

pytestmark = pytest.mark.timeout(600)

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def undisturbed(content: dict[str, Any], start: Any) -> Any:
    """A run that nobody disturbs: what the others must end with."""
    run = start(content, name="undisturbed")
    assert run.end() == 0, run.log
    return run


@pytest.fixture(scope="module")
def content(small_model: Path, small_data: Path, document: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A job of 60 steps on two nodes, with evaluations and checkpoints in between."""
    training = {"maxSteps": 60, "evaluateEvery": 25, "checkpointEvery": 20, "learningRate": 1e-3}
    return document(small_model, small_data, nodes=2, training=training)


def with_policy(content: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """Return the document with a run policy."""
    return {**content, "spec": {**content["spec"], "runPolicy": policy}}


def is_phase(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["event"] == "Phase" and event["name"] == name and event["rank"] == 0


def is_step(step: int) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["event"] == "Step" and event["rank"] == 0 and event["step"] >= step


def after_kill(events: Events, killed: float) -> dict[str, float]:
    """Return when each stage of the restart was reached, in seconds after the kill."""
    later = [event for event in events if event["time"] > killed]
    join = next(event for event in later if is_phase("Join")(event))["time"]
    stages = {
        "forked": join,
        "joined": next(event for event in later if is_phase("Load")(event))["time"],
        "loaded": next(event for event in later if event["event"] == "Setup")["time"],
        "step": next(event for event in later if is_step(0)(event) and event["time"] > join)["time"],
    }
    return {name: when - killed for name, when in stages.items()}


def test_killed_anywhere_the_run_recovers_within_seconds_and_ends_with_the_same_weights(
    content: dict[str, Any], undisturbed: Any, start: Any
) -> None:
    run = start(content, name="killed")
    kills = []
    for wanted, what, rank in (
        (is_step(13), "step 13", 1),
        (is_phase("Checkpoint"), "a checkpoint being written", 0),
        (is_phase("Evaluate"), "an evaluation", 1),
    ):
        run.wait_for(wanted, what)
        kills.append((what, run.kill(rank)))
    assert run.end() == 0, run.log

    report = run.report
    assert len(report["restarts"]) == len(kills), run.log
    for what, killed in kills:
        stages = after_kill(run.events(), killed)
        print(f"killed during {what}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.items()))
        assert stages["step"] < RESTART_GOAL
    causes = [attempt["causes"] for attempt in report["attempts"]][: len(kills)]
    assert all(any(cause["kind"] == "Signal" for cause in one) for one in causes)
    assert report["result"]["checksum"] == undisturbed.report["result"]["checksum"]
    assert run.losses() == undisturbed.losses()


def test_sigterm_writes_a_checkpoint_and_the_same_command_resumes_to_the_same_weights(
    content: dict[str, Any], undisturbed: Any, start: Any
) -> None:
    run = start(content, name="stopped")
    run.wait_for(is_step(13), "step 13")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143, run.log
    checkpoints = sorted(path.name for path in (run.output / "checkpoints").glob("step-*"))
    assert int(checkpoints[-1].removeprefix("step-")) >= 13
    assert not (run.output / "model").exists()
    assert "run the same command again to resume" in run.log

    again = start(content, name="stopped")
    assert again.end() == 0, again.log
    steps = again.report["setup"]["totalSteps"]
    assert again.report["history"]["step"] == list(range(1, steps + 1)), "the report covers both runs"
    assert again.report["setup"]["resumedFromStep"] == int(checkpoints[-1].removeprefix("step-"))
    assert again.report["result"]["checksum"] == undisturbed.report["result"]["checksum"]


def test_a_rank_that_hangs_is_found_and_named(content: dict[str, Any], start: Any) -> None:
    # Nothing but steps, for which stallSeconds holds: a checkpoint may take longer, and oneCCL would tell first.
    training = {**content["spec"]["training"], "evaluateEvery": "Never", "checkpointEvery": 1000}
    steps_only = {**content, "spec": {**content["spec"], "training": training}}
    run = start(with_policy(steps_only, stallSeconds=3), name="hung")
    run.wait_for(is_step(5), "step 5")
    os.kill(run.pid("cft-rank-1"), signal.SIGSTOP)
    assert run.end() == 0, run.log
    causes = run.report["attempts"][0]["causes"]
    assert {cause["kind"] for cause in causes} & {"Stall"}
    assert "no sign of life" in run.log


def test_a_run_that_keeps_failing_gives_up_after_the_backoff_limit(content: dict[str, Any], start: Any) -> None:
    run = start(with_policy(content, backoffLimit=1), name="failing")
    for attempt in (1, 2):
        run.wait_for(lambda event, n=attempt: is_phase("Train")(event) and event["attempt"] == n, f"attempt {attempt}")
        run.kill(1)
    assert run.end() == 1, run.log
    assert "gave up" in run.log
    assert "rank 1 on node 1: Killed: SIGKILL" in run.log
    assert len(run.report["attempts"]) == 2


def test_a_launcher_that_dies_comes_back_as_a_newcomer(content: dict[str, Any], start: Any) -> None:
    run = start(content, name="newcomer")
    run.wait_for(is_step(22), "step 22")
    os.kill(run.pid("cft-node-1"), signal.SIGKILL)
    assert run.end() == 0, run.log
    assert "node 1 is back" in run.log
    assert run.report["setup"]["resumedFromStep"] in {20, 40}


def test_nothing_of_a_killed_run_stays_behind(content: dict[str, Any], start: Any) -> None:
    run = start(content, name="orphaned")
    run.wait_for(is_step(3), "step 3")
    pids = [run.pid("cft-rank-0"), run.pid("cft-rank-1")]
    run.process.kill()
    run.process.wait()
    deadline = time.monotonic() + 5
    while any(map(lives, pids)):
        assert time.monotonic() < deadline, "ranks outlive their launcher"
        time.sleep(0.05)


def test_sigterm_during_a_long_evaluation_is_obeyed_at_once_and_nothing_is_lost(
    demo: Path, small_data: Path, document: Callable[..., dict[str, Any]], start: Any
) -> None:
    # Half of the documents, over several seconds.
    training = {"maxSteps": 4, "evaluateEvery": 2, "checkpointEvery": 1000}
    job = document(demo / "minilm", small_data, nodes=2, training=training)
    job["spec"]["dataset"]["validationFraction"] = 0.5
    run = start(job, name="evaluating")
    run.wait_for(is_phase("Evaluate"), "an evaluation")
    # One rank alone, as when one pod is evicted: the other hears of it.
    os.kill(run.pid("cft-rank-1"), signal.SIGTERM)
    stopped = run.wait_for(lambda event: event["event"] == "Checkpointed", "a checkpoint")
    assert stopped["step"] == 2
    assert run.end() == 143, run.log
    assert not [event for event in run.events() if event["event"] == "Evaluation"]

    again = start(job, name="evaluating")
    assert again.end() == 0, again.log
    assert again.report["setup"]["resumedFromStep"] == 2
    assert [entry["step"] for entry in again.report["evaluations"] if entry["split"] == "validation"] == [2, 4]
