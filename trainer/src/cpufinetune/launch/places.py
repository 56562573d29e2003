"""Where a pod finds things: mounts, files of the kubelet, ports. Tests run pods with others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cpufinetune.errors import JobError
from cpufinetune.job.document import Dataset, Splits
from cpufinetune.launch.termination import MARKER

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.job.document import Job

# What `fetch` leaves below the scratch folder for a model or a dataset of the hub.
FETCHED_MODEL, FETCHED_DATA = "model", "data"
FETCHED_SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The options of `cpufinetune pod`."""

    job: Path
    scratch: Path
    output_root: Path
    model_root: Path
    data_root: Path
    termination_message: Path
    resolv_conf: Path
    host_name: str
    port: int
    report_port: int

    @property
    def marker(self) -> Path:
        """What a launcher that is done leaves for the container's next life."""
        return self.scratch / MARKER

    def model(self, job: Job) -> Path:
        """Return the model's folder.

        Raises:
            JobError: it is on no volume.
        """
        model = job.spec.model
        if model.name is not None:
            return self.scratch / FETCHED_MODEL
        if model.claim is None:
            raise _no_claim("model")
        return self.model_root / (model.path or "")

    def data(self, job: Job) -> Path:
        """Return the folder of the data files.

        Raises:
            JobError: it is on no volume.
        """
        dataset = job.spec.dataset
        if dataset.name is not None:
            return self.scratch / FETCHED_DATA
        if dataset.claim is None:
            raise _no_claim("dataset")
        return self.data_root / (dataset.path or "")

    def output(self, job: Job) -> Path:
        """Return the folder of model, checkpoints and report; in a claim that others share it is the job's own."""
        output = job.spec.output
        return self.output_root / (output.path or (job.name if output.claim is not None else ""))

    def fetched(self, job: Job) -> Job:
        """Return the job as ranks shall read it: a dataset of the hub has become files.

        Raises:
            JobError: nothing was fetched.
        """
        if job.spec.dataset.name is None:
            return job
        folder = self.data(job)
        files = {split: f"{split}.parquet" for split in FETCHED_SPLITS if (folder / f"{split}.parquet").is_file()}
        if "train" not in files:
            raise JobError("NotFetched", f"{folder}: no train.parquet", "`cpufinetune fetch` has to run before")
        fraction = job.spec.dataset.validation_fraction
        local = Dataset(path=str(folder), files=Splits(**files), validation_fraction=fraction)
        return replace(job, spec=replace(job.spec, dataset=local))


def _no_claim(field: str) -> JobError:
    return JobError(
        "NoClaim", f"spec.{field}.path alone is a folder of one machine", f"in a cluster name a spec.{field}.claim"
    )
