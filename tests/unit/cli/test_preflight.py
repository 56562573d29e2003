from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.cli.preflight import check
from cpufinetune.cli.workspace import Workspace
from cpufinetune.errors import JobError
from cpufinetune.job.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.job.document import Job


def job(file: str = "train.csv", **changes: Any) -> Job:
    spec: dict[str, Any] = {
        "model": {"path": "m"},
        "dataset": {"path": "d", "files": {"train": file}},
        "task": {"text": ["text"], "label": "label"},
        "output": {"ephemeral": True},
        **changes,
    }
    header = {"apiVersion": "cpufinetune.dev/v1alpha1", "kind": "CpuFineTune", "metadata": {"name": "test"}}
    return parse({**header, "spec": spec}, rules=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A model folder and an empty data folder."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "d").mkdir()
    return Workspace(tmp_path / "m", tmp_path / "d", tmp_path / "out")


@pytest.mark.parametrize(
    ("file", "content", "reason", "words"),
    [
        pytest.param("train.csv", None, "FileNotFound", "no such file", id="a missing file"),
        pytest.param(
            "train.csv", b"txet,label\na,b\n", "MissingColumn", "did you mean 'txet'?", id="a misspelt column"
        ),
        pytest.param("train.tsv", b"text\tclass\na\tb\n", "MissingColumn", "no column 'label'", id="a tsv column"),
        pytest.param("train.jsonl", b'\n{"text": "a"}\n', "MissingColumn", "no column 'label'", id="a jsonl field"),
    ],
)
def test_what_is_mistyped_is_told_at_once(
    workspace: Workspace, file: str, content: bytes | None, reason: str, words: str
) -> None:
    assert workspace.data_root is not None
    if content is not None:
        (workspace.data_root / file).write_bytes(content)
    with pytest.raises(JobError, match=words) as caught:
        check(job(file), workspace)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param("train.csv", b"label,text\na,b\n", id="a good csv"),
        pytest.param("train.csv", b"\xff\xfe", id="not UTF-8: preparation says where"),
        pytest.param("train.csv", b"", id="an empty file: preparation says so"),
        pytest.param("train.jsonl", b"no json", id="not JSON: preparation says where"),
        pytest.param("train.parquet", b"PAR1", id="parquet is left to preparation"),
    ],
)
def test_what_takes_longer_is_left_to_preparation(workspace: Workspace, file: str, content: bytes) -> None:
    assert workspace.data_root is not None
    (workspace.data_root / file).write_bytes(content)
    check(job(file), workspace)


def test_a_folder_without_a_model_is_refused(workspace: Workspace) -> None:
    assert workspace.model_root is not None
    (workspace.model_root / "config.json").unlink()
    with pytest.raises(JobError, match=r"no config\.json"):
        check(job(), workspace)


def test_the_hub_is_not_asked(tmp_path: Path) -> None:
    check(job(), Workspace(None, None, tmp_path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"training": {"intel": "On"}}, "IntelUnavailable", id="an extension that is not there"),
        pytest.param({"runPolicy": {"suspend": True}}, "Suspended", id="a suspended job"),
    ],
)
def test_what_cannot_be_honoured_is_not_ignored(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(JobError) as caught:
        check(job(**changes), Workspace(None, None, tmp_path))
    assert caught.value.reason == reason
