"""Intel's extension for PyTorch: it computes the same, leaves the same files, and is used only where it pays.

Only collected where it is installed: `make test-intel`.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from safetensors import safe_open

from cpufinetune.train.intel import CLEARLY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 16
TOLERANCE = 1e-4  # relative, at every step
RANKS = 2

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def content(small_model: Path, small_data: Path, document: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """Build the document of a short job of two nodes with one rank each."""

    def build(**training: Any) -> dict[str, Any]:
        values = {"maxSteps": STEPS, "checkpointEvery": 8, "learningRate": 5e-5, "evaluateEvery": "Never", **training}
        return document(small_model, small_data, training=values, nodes=RANKS, node={"ranks": 1})

    return build


@pytest.fixture(scope="module")
def trained(content: Any, start: Any) -> dict[str, Any]:
    """The job with each choice, trained to the end."""
    runs = {}
    for choice in ("Off", "On", "Auto"):
        runs[choice] = start(content(intel=choice), name=choice)
        assert runs[choice].end() == 0, runs[choice].log
    return runs


def choice_of(run: Any) -> dict[str, Any]:
    return dict(run.report["setup"]["extra"]["intel"])


def tensors(path: Path) -> dict[str, tuple[str, list[int]]]:
    with safe_open(path, "numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        return {name: (one.get_dtype(), one.get_shape()) for name, one in slices.items()}


@pytest.mark.parametrize("choice", ["On", "Auto"])
def test_two_ranks_learn_the_same_with_and_without(trained: dict[str, Any], choice: str) -> None:
    expected, found = trained["Off"].losses(), trained[choice].losses()
    assert sorted(found) == list(range(1, STEPS + 1))
    assert found == pytest.approx(expected, rel=TOLERANCE)


def test_on_and_off_are_what_is_asked_for(trained: dict[str, Any]) -> None:
    assert choice_of(trained["On"]) == {"on": True, "reason": "asked for"}
    assert choice_of(trained["Off"]) == {"on": False, "reason": "asked for"}


def test_auto_times_both_ways_and_keeps_the_faster(trained: dict[str, Any]) -> None:
    found = choice_of(trained["Auto"])
    assert found["secondsWith"] > 0
    assert found["secondsWithout"] > 0
    assert found["on"] == (found["secondsWith"] < CLEARLY * found["secondsWithout"])
    assert f"intel: {'on' if found['on'] else 'off'}, " in trained["Auto"].log


def test_a_trial_leaves_no_trace_in_the_training(trained: dict[str, Any]) -> None:
    # Whatever it chose, the run is to the bit one that was told so.
    told = "On" if choice_of(trained["Auto"])["on"] else "Off"
    assert trained["Auto"].losses() == trained[told].losses()


def test_the_model_is_that_of_a_run_without(trained: dict[str, Any]) -> None:
    found, expected = (tensors(trained[choice].output / "model" / "model.safetensors") for choice in ("On", "Off"))
    assert found == expected


def stopped_early(run: Any) -> dict[str, Any]:
    """Stop a run after a few more steps; return the event of its setup."""
    setup: dict[str, Any] = run.wait_for(lambda event: event["event"] == "Setup", "its setup")
    run.wait_for(lambda event: event["event"] == "Step", "a step")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143, run.log
    return setup


def test_a_checkpoint_is_that_of_a_run_without(trained: dict[str, Any], content: Any, start: Any) -> None:
    run = start(content(intel="On", maxSteps=400), name="stopped")
    stopped_early(run)
    path = max(run.output.glob("checkpoints/step-*/model.safetensors"))
    assert tensors(path) == tensors(trained["Off"].output / "model" / "model.safetensors")


def test_a_resumed_run_keeps_its_choice_and_times_nothing(content: Any, start: Any) -> None:
    job = content(intel="Auto", maxSteps=400)
    first = stopped_early(start(job, name="resumed"))
    again = start(job, name="resumed")
    again.wait_for(lambda event: event == first, "the first run's setup")
    second = stopped_early(again)
    assert "secondsWith" in first["extra"]["intel"]
    assert second["resumedFromStep"] is not None
    chosen = first["extra"]["intel"]["on"]
    assert second["extra"]["intel"] == {"on": chosen, "reason": "as in the run that is resumed"}


def test_bf16_with_it_learns_as_without(content: Any, start: Any) -> None:
    runs = [start(content(intel=choice, precision="BFloat16"), name=f"bf16-{choice}") for choice in ("Off", "On")]
    assert [run.end() for run in runs] == [0, 0], [run.log for run in runs]
    # bf16 keeps 8 bits: operators that fuse otherwise differ in the third digit.
    assert runs[1].losses() == pytest.approx(runs[0].losses(), rel=1e-2)
