from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.errors import JobError
from cpufinetune.job.document import Dataset, Job, Model, Spec, Task, Training
from cpufinetune.train import extension, state
from cpufinetune.train.attempt import recipe
from cpufinetune.train.intel import Choice, announced, decide, settled

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.job.document import Intel

ABSENT = "intel-extension-for-pytorch is not installed"
RESUMED = "as in the run that is resumed"


def job(intel: Intel) -> Job:
    spec = Spec(model=Model(), dataset=Dataset(), task=Task(text=("text",), label="label"))
    return Job(name="test", spec=replace(spec, training=Training(intel=intel)))


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Make `folder` a place where packages are installed, as far as one can tell without importing them."""
    for name, version in versions.items():
        home = folder / f"{name}-{version}.dist-info"
        home.mkdir()
        (home / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize(
    ("own", "torch", "problem"),
    [
        ("2.8.0", "2.8.0", None),
        ("2.8.10", "2.8.0+cpu", None),
        ("2.8.0", "2.15.0", "intel-extension-for-pytorch 2.8.0 does not fit PyTorch 2.15.0"),
    ],
)
def test_it_must_be_of_the_series_of_pytorch(
    own: str, torch: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, intel_extension_for_pytorch=own, torch=torch)
    assert extension.problem() == problem


def test_on_without_it_is_refused_with_the_cure() -> None:
    with pytest.raises(JobError, match="is not installed") as caught:
        extension.require(job("On"))
    assert caught.value.reason == "IntelUnavailable"
    assert "cpufinetune[intel]" in caught.value.fix
    extension.require(job("Auto"))
    extension.require(job("Off"))


@pytest.mark.parametrize(
    ("wanted", "problem", "resumed", "before", "expected"),
    [
        ("On", None, False, None, Choice(on=True, reason="asked for")),
        ("Off", None, True, True, Choice(on=False, reason="asked for")),
        ("Auto", ABSENT, False, None, Choice(on=False, reason=ABSENT)),
        ("Auto", ABSENT, True, False, Choice(on=False, reason=ABSENT)),
        (
            "Auto",
            ABSENT,
            True,
            True,
            Choice(on=False, reason=f"{ABSENT}, although the checkpoint was trained with it"),
        ),
        ("Auto", None, True, True, Choice(on=True, reason=RESUMED)),
        ("Auto", None, True, False, Choice(on=False, reason=RESUMED)),
        ("Auto", None, True, None, Choice(on=False, reason=RESUMED)),
        ("Auto", None, False, None, None),
    ],
)
def test_only_a_new_run_under_auto_needs_a_trial(
    wanted: Intel, problem: str | None, *, resumed: bool, before: bool | None, expected: Choice | None
) -> None:
    assert settled(wanted, problem, resumed=resumed, before=before) == expected


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([[0.4, 0.5]], Choice(on=True, reason="faster in a trial", with_seconds=0.4, without_seconds=0.5)),
        ([[0.495, 0.5]], Choice(on=False, reason="not 2% faster in a trial", with_seconds=0.495, without_seconds=0.5)),
        ([[0.5, 0.5]], Choice(on=False, reason="not 2% faster in a trial", with_seconds=0.5, without_seconds=0.5)),
        (
            [[0.4, 0.5], [0.9, 0.8]],
            Choice(on=False, reason="not 2% faster in a trial", with_seconds=0.9, without_seconds=0.8),
        ),
        (
            [[0.4, 0.5], [math.inf, math.inf]],
            Choice(on=False, reason="the trial failed on rank 1, whose log says more"),
        ),
    ],
)
def test_the_slowest_rank_decides(figures: list[list[float]], expected: Choice) -> None:
    assert decide(figures) == expected


def test_the_report_has_figures_where_there_are_some() -> None:
    assert Choice(on=False, reason=ABSENT).document() == {"on": False, "reason": ABSENT}
    timed = Choice(on=True, reason="faster in a trial", with_seconds=0.4, without_seconds=0.5).document()
    assert timed == {"on": True, "reason": "faster in a trial", "secondsWith": 0.4, "secondsWithout": 0.5}


def test_a_plan_tells_what_a_run_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert announced("Off") == "Off (asked for)"
    assert announced("Auto") == f"Off ({ABSENT})"
    install(tmp_path, monkeypatch, intel_extension_for_pytorch="2.8.0", torch="2.8.0")
    assert announced("Auto") == "Auto (timed with and without when training starts)"


def test_new_fields_count_only_where_they_are_used() -> None:
    # The very fields of version 0.1.0: a checkpoint of it must still be resumed.
    old = "epochs max_steps batch_size micro_batch_size learning_rate schedule warmup_ratio weight_decay max_grad_norm"
    last = "dropout precision seed evaluate_every checkpoint_every lora"
    assert list(recipe(Training())) == [
        *old.split(),
        *last.split(),
    ]
    assert recipe(Training(intel="On"))["intel"] == "On"
    assert recipe(Training(gradient_compression="BFloat16"))["gradient_compression"] == "BFloat16"


def test_the_state_of_an_older_checkpoint_is_read() -> None:
    older: dict[str, Any] = {"step": 5, "best_metric": None, "best_step": None, "best_metrics": {}, "job": "abc"}
    assert state.RunState.read(older) == state.RunState(step=5)
    assert state.RunState.read({**older, "intel": True}).intel is True


def test_alone_a_rank_gathers_its_own() -> None:
    assert state.gather((0.5, math.inf), 0, 1) == [[0.5, math.inf]]
