from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.errors import JobError
from cpufinetune.job.document import Dataset, Job, Model, Output, Spec, Splits, Task, Volume
from cpufinetune.launch.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = Splits(train="train.csv")
HUB_MODEL = Model(name="bert", revision="a" * 40)
HUB_DATA = Dataset(name="glue", config="mrpc", revision="b" * 40, validation_fraction=0.2)


def places(scratch: Path = Path("/scratch")) -> Places:
    return Places(
        job=Path("/etc/cpufinetune/job.yaml"),
        scratch=scratch,
        output_root=Path("/output"),
        model_root=Path("/model"),
        data_root=Path("/data"),
        termination_message=Path("/dev/termination-log"),
        resolv_conf=Path("/etc/resolv.conf"),
        host_name="mrpc-0",
        port=29400,
        report_port=8080,
    )


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {
        "model": Model(claim="models"),
        "dataset": Dataset(claim="data", files=FILES),
        "task": Task(text=("text",), label="label"),
    }
    return Job(name="mrpc", spec=Spec(**values | changes))


@pytest.mark.parametrize(
    ("changes", "find", "folder"),
    [
        ({}, Places.model, "/model"),
        ({"model": Model(claim="models", path="a/b")}, Places.model, "/model/a/b"),
        ({"model": HUB_MODEL}, Places.model, "/scratch/model"),
        ({}, Places.data, "/data"),
        ({"dataset": Dataset(claim="data", path="r8", files=FILES)}, Places.data, "/data/r8"),
        ({"dataset": HUB_DATA}, Places.data, "/scratch/data"),
        pytest.param({}, Places.output, "/output", id="ephemeral output"),
        pytest.param({"output": Output(volume=Volume(size="1Gi"))}, Places.output, "/output", id="a volume of its own"),
        pytest.param({"output": Output(claim="c")}, Places.output, "/output/mrpc", id="a claim that others share"),
        pytest.param({"output": Output(claim="c", path="x/y")}, Places.output, "/output/x/y", id="a folder of a claim"),
    ],
)
def test_folders_are_where_the_volumes_are(
    changes: dict[str, Any], find: Callable[[Places, Job], Path], folder: str
) -> None:
    assert find(places(), job(**changes)) == Path(folder)


@pytest.mark.parametrize(
    ("changes", "find", "field"),
    [
        ({"model": Model(path="/models")}, Places.model, "model"),
        ({"dataset": Dataset(path="/data", files=FILES)}, Places.data, "dataset"),
    ],
)
def test_a_folder_of_one_machine_is_refused(
    changes: dict[str, Any], find: Callable[[Places, Job], Path], field: str
) -> None:
    with pytest.raises(JobError, match=rf"spec\.{field}\.path alone") as caught:
        find(places(), job(**changes))
    assert f"spec.{field}.claim" in caught.value.fix


@pytest.mark.parametrize(
    ("splits", "files"),
    [
        (("train",), Splits(train="train.parquet")),
        (("train", "test"), Splits(train="train.parquet", test="test.parquet")),
    ],
)
def test_a_dataset_of_the_hub_becomes_the_files_that_were_fetched(
    tmp_path: Path, splits: tuple[str, ...], files: Splits
) -> None:
    (tmp_path / "data").mkdir()
    for split in splits:
        (tmp_path / "data" / f"{split}.parquet").touch()
    asked = job(dataset=HUB_DATA, model=HUB_MODEL)
    read = places(tmp_path).fetched(asked)
    assert read.spec.dataset == Dataset(path=str(tmp_path / "data"), files=files, validation_fraction=0.2)
    assert (read.spec.model, read.spec.task, read.name) == (asked.spec.model, asked.spec.task, asked.name)


def test_data_that_was_not_fetched_is_missed(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"no train\.parquet") as caught:
        places(tmp_path).fetched(job(dataset=HUB_DATA))
    assert caught.value.reason == "NotFetched"


def test_files_of_a_claim_stay_what_they_are() -> None:
    asked = job()
    assert places().fetched(asked) is asked
