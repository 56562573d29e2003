from __future__ import annotations

import fcntl
import json
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.errors import AttemptError, JobError
from cpufinetune.job.document import Dataset, Job, Model, Spec, Splits, Task, Training
from cpufinetune.launch.output import LOCK, Output

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT = "checkpoints/step-00000020/state.json"


def job(**training: Any) -> Job:
    return Job(
        name="mrpc",
        uid="mine",
        spec=Spec(
            model=Model(claim="m"),
            dataset=Dataset(claim="d", files=Splits(train="train.csv")),
            task=Task(text=("text",), label="label"),
            training=Training(**training),
        ),
    )


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "mrpc", "mine")


def fill(output: Output, *names: str) -> None:
    for name in names:
        path = output.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}", encoding="utf-8")


def hold(output: Output, **training: Any) -> str:
    """Hold the folder for a moment, with events and a journal as a life leaves them; return what was said."""
    with output.hold(job(**training)) as note:
        fill(output, ".cpufinetune/events", ".cpufinetune/attempts")
    return note


def test_a_new_folder_is_made(output: Output) -> None:
    assert hold(output) == ""
    assert output.path.is_dir()


def test_the_next_life_of_the_same_job_finds_all_that_is_left(output: Output) -> None:
    hold(output)
    # Written whole, but a rank died before the job was complete.
    fill(output, CHECKPOINT, "model/model.safetensors")
    with output.hold(job()) as note:
        assert note == ""
        assert all(path.exists() for path in (output.events, output.journal, output.path / CHECKPOINT))


def test_the_model_of_another_job_is_not_touched(output: Output) -> None:
    hold(Output(output.path, "other"))
    fill(output, "model/model.safetensors", CHECKPOINT)
    with pytest.raises(JobError, match="there is the model of another job") as caught:
        hold(output)
    assert caught.value.reason == "OutputHasModel"
    assert "spec.output.path" in caught.value.fix
    assert (output.path / CHECKPOINT).exists()


def test_checkpoints_of_a_job_of_this_name_that_is_gone_stay_and_its_failures_do_not_count(output: Output) -> None:
    hold(Output(output.path, "other"))
    fill(output, CHECKPOINT)
    with output.hold(job()):
        assert (output.path / CHECKPOINT).exists()
        assert not output.events.exists()
        assert not output.journal.exists()


def test_a_job_that_changed_while_it_was_suspended_starts_anew(output: Output) -> None:
    hold(output)
    fill(output, CHECKPOINT, "notes.txt")
    with output.hold(job(seed=7)) as note:
        assert "starts anew" in note
        assert not output.checkpoints.exists()
        assert not output.journal.exists()
        assert (output.path / "notes.txt").exists()
    assert hold(output, seed=7) == ""


@pytest.mark.parametrize(("owner", "kind"), [("mine", AttemptError), ("other", JobError)])
def test_a_folder_in_use_is_waited_for_only_if_it_is_the_jobs_own(
    output: Output, owner: str, kind: type[Exception]
) -> None:
    hold(Output(output.path, owner))
    with (output.path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(kind, match=r"holds it|uses it"):
            hold(output)
    assert hold(output) == ""


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(JobError, match="file") as caught:
        hold(Output(tmp_path / "file" / "mrpc", "mine"))
    assert caught.value.reason == "OutputNotWritable"


@pytest.mark.parametrize(
    ("word", "complete"),
    [
        ({"uid": "mine", "code": 0}, True),
        pytest.param({"uid": "other", "code": 0}, False, id="another job"),
        pytest.param({"uid": "mine", "code": 2}, False, id="not complete"),
        pytest.param([], False, id="no object"),
    ],
)
def test_only_this_jobs_own_success_is_its_last_word(output: Output, word: Any, *, complete: bool) -> None:
    assert output.last_word() is None
    fill(output, ".cpufinetune/finished.json")
    output.finished.write_text(json.dumps(word), encoding="utf-8")
    assert output.last_word() == (word if complete else None)


def test_a_complete_job_keeps_its_last_word_and_nothing_to_resume(output: Output) -> None:
    hold(output)
    fill(output, CHECKPOINT, ".cpufinetune/finished.json", "model/model.safetensors", "report.json")
    output.clear()
    left = {str(path.relative_to(output.path)) for path in output.path.rglob("*") if path.is_file()}
    assert left == {
        LOCK,
        ".cpufinetune/owner.json",
        ".cpufinetune/finished.json",
        "model/model.safetensors",
        "report.json",
    }
