from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cpufinetune.cli.workspace import Workspace, claim_output, parse_claims, resolve
from cpufinetune.errors import JobError
from cpufinetune.job import Job, parse
from cpufinetune.job.document import Dataset, Model, Output, Spec, Splits, Task

TASK = Task(text=("text",), label="label")
FILES = Splits(train="train.csv")


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {
        "model": Model(path="models/tiny"),
        "dataset": Dataset(path="data", files=FILES),
        "task": TASK,
        "output": Output(path="out"),
    }
    return Job(name="mrpc", spec=Spec(**values | changes))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; documents lie in `here/jobs`."""
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "output", "expected"),
    [
        pytest.param({}, None, ("jobs/models/tiny", "jobs/data", "jobs/out"), id="paths are relative to the document"),
        pytest.param(
            {"model": Model(path="../m"), "dataset": Dataset(path="../../d"), "output": Output(path=".")}, None,
            ("m", "../d", "jobs"), id="and may lead out of its folder",
        ),
        pytest.param(
            {"model": Model(path="/m"), "dataset": Dataset(path="/d"), "output": Output(path="/o")}, None,
            ("/m", "/d", "/o"), id="absolute paths stay",
        ),
        pytest.param({}, "there", ("jobs/models/tiny", "jobs/data", "there"), id="--output is relative to here"),
        pytest.param(
            {"output": Output(ephemeral=True)}, None, ("jobs/models/tiny", "jobs/data", "mrpc"),
            id="without an output path it is named after the job, here",
        ),
        pytest.param(
            {"model": Model(name="tiny"), "dataset": Dataset(name="glue")}, None, (None, None, "jobs/out"),
            id="the hub has no folders",
        ),
        pytest.param(
            {"model": Model(claim="models", path="tiny"), "dataset": Dataset(claim="data", files=FILES)}, None,
            ("volumes/models/tiny", "/mnt/data", "jobs/out"), id="folders stand in for claims",
        ),
    ],
)  # fmt: skip
def test_folders_are_found(
    here: Path, changes: dict[str, Any], output: str | None, expected: tuple[str | None, ...]
) -> None:
    claims = parse_claims(["models=volumes/models", "data=/mnt/data"])
    file = (here / "jobs" / "job.yaml").relative_to(here)
    found = resolve(job(**changes), file, None if output is None else here / output, claims)
    wanted = [None if path is None else (here / path).resolve() for path in expected]
    assert [found.model_root, found.data_root, found.output] == wanted
    assert found.scratch == found.output / ".cpufinetune"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": Model(claim="store", path="tiny")}, "model"),
        ({"dataset": Dataset(claim="store", path="data", files=FILES)}, "dataset"),
    ],
    ids=["model", "dataset"],
)
def test_a_claim_needs_a_folder(here: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(JobError, match=rf"spec\.{field}\.claim 'store' exists in a cluster only") as caught:
        resolve(job(**changes), here / "job.yaml", None, {})
    assert caught.value.reason == "ClaimWithoutFolder"
    assert caught.value.fix.endswith("--claim store=FOLDER")


@pytest.mark.parametrize(
    ("texts", "claims"),
    [
        ([], {}),
        (["models=/m", "data=d"], {"models": "/m", "data": "d"}),
        pytest.param(["models=/m=n"], {"models": "/m=n"}, id="folders may hold an equals sign"),
        pytest.param(["models=/a", "models=/b"], {"models": "/b"}, id="the last of a name counts"),
    ],
)
def test_claims_are_read(texts: list[str], claims: dict[str, str]) -> None:
    assert {name: str(folder) for name, folder in parse_claims(texts).items()} == claims


@pytest.mark.parametrize("text", ["", "models", "models=", "=/m", "="])
def test_bad_claims_are_refused(text: str) -> None:
    with pytest.raises(JobError, match=f"--claim {text}") as caught:
        parse_claims([text])
    assert (caught.value.reason, caught.value.fix) == ("BadArgument", "write --claim NAME=FOLDER")


def used(output: Path, *, model: bool = True) -> Workspace:
    """A workspace after a run, with a file of somebody else."""
    names = ["checkpoints/step-00000001/state.json", ".cpufinetune/job.json", "report.json", "loss.png", "notes.txt"]
    for name in [*names, *(["model/config.json"] if model else [])]:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text("{}", encoding="utf-8")
    return Workspace(None, None, output)


def names(output: Path) -> list[str]:
    return sorted(path.name for path in output.iterdir())


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_new_output_folder_is_made(tmp_path: Path, *, overwrite: bool) -> None:
    with claim_output(Workspace(None, None, tmp_path / "some" / "where"), overwrite=overwrite):
        assert names(tmp_path / "some" / "where") == [".cpufinetune", ".cpufinetune.lock"]


def test_an_unfinished_run_is_left_to_be_resumed(tmp_path: Path) -> None:
    workspace = used(tmp_path / "out", model=False)
    before = names(workspace.output)
    with claim_output(workspace, overwrite=False):
        pass
    assert names(workspace.output) == before


def test_a_finished_model_is_not_touched(tmp_path: Path) -> None:
    workspace = used(tmp_path / "out")
    before = names(workspace.output)
    with pytest.raises(JobError, match="there is a model already") as caught, claim_output(workspace, overwrite=False):
        pass
    assert caught.value.reason == "OutputHasModel"
    assert "--overwrite" in caught.value.fix
    assert names(workspace.output) == before


def test_overwriting_keeps_the_old_model_until_there_is_a_new_one(tmp_path: Path) -> None:
    workspace = used(tmp_path / "out")
    with claim_output(workspace, overwrite=True):
        assert not workspace.checkpoints.exists()
        assert (workspace.output / "model" / "config.json").is_file()
        assert (workspace.output / "notes.txt").is_file()


def test_two_runs_cannot_share_an_output_folder(tmp_path: Path) -> None:
    workspace = Workspace(None, None, tmp_path / "out")
    with claim_output(workspace, overwrite=False):
        with pytest.raises(JobError, match="another run uses it") as caught, claim_output(workspace, overwrite=True):
            pass
        assert caught.value.reason == "OutputBusy"
    with claim_output(workspace, overwrite=False):
        pass


def test_a_run_does_not_replace_its_own_input(tmp_path: Path) -> None:
    workspace = used(tmp_path / "out")
    taken = Workspace(workspace.output / "model", None, workspace.output)
    with pytest.raises(JobError, match="would replace its own input"), claim_output(taken, overwrite=True):
        pass
    assert (workspace.output / "model" / "config.json").is_file()


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("below", [".", "deeper"])
def test_an_output_that_is_a_file_is_refused(tmp_path: Path, below: str, *, overwrite: bool) -> None:
    (tmp_path / "out").write_text("", encoding="utf-8")
    workspace = Workspace(None, None, tmp_path / "out" / below)
    with pytest.raises(JobError) as caught, claim_output(workspace, overwrite=overwrite):
        pass
    assert caught.value.reason == "OutputNotWritable"
    assert (tmp_path / "out").is_file()


def test_ranks_get_the_effective_document_and_the_folders(tmp_path: Path) -> None:
    asked = job()
    workspace = Workspace(tmp_path / "m", None, tmp_path / "out")
    template = workspace.template(asked)
    assert (template.model_root, template.data_root) == (str(tmp_path / "m"), None)
    assert (template.output, template.scratch) == (str(tmp_path / "out"), str(tmp_path / "out" / ".cpufinetune"))
    assert parse(json.loads(Path(template.job_file).read_text(encoding="utf-8")), rules=False) == asked
