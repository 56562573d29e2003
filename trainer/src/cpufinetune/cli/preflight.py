"""What can be told of model and data in a moment, before libraries are imported for many seconds.

Preparation checks everything; this only saves a user the wait for what is mistyped.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

from cpufinetune.errors import JobError
from cpufinetune.train.data.columns import check_columns
from cpufinetune.train.extension import require

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.cli.workspace import Workspace
    from cpufinetune.job.document import Job

DELIMITERS = {".csv": ",", ".tsv": "\t"}


def check(job: Job, workspace: Workspace) -> None:
    """Look for model folder, data files and their columns.

    Raises:
        JobError: the first thing that is missing, or asked for and not there.
    """
    require(job)
    if job.spec.run_policy.suspend:
        raise JobError("Suspended", "spec.runPolicy.suspend is true", "set it to false to run the job")
    if workspace.model_root is not None:
        _check_model(workspace.model_root)
    files = job.spec.dataset.files
    if workspace.data_root is not None and files is not None:
        for name in (files.train, files.validation, files.test):
            if name is not None:
                _check_file(workspace.data_root / name, [*job.spec.task.text, job.spec.task.label])


def _check_model(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        what = "no config.json in the model folder" if folder.is_dir() else "no such model folder"
        raise JobError("ModelNotFound", f"{folder}: {what}", "name a Hugging Face model folder in spec.model.path")


def _check_file(path: Path, columns: list[str]) -> None:
    if not path.is_file():
        raise JobError("FileNotFound", f"{path}: no such file", "correct spec.dataset.path or spec.dataset.files")
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            if path.suffix in DELIMITERS:
                quoted = path.suffix == ".csv"
                rows = csv.reader(
                    stream,
                    delimiter=DELIMITERS[path.suffix],
                    quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
                )
                header = next((row for row in rows if row), None)
            elif path.suffix == ".jsonl":
                header = list(json.loads(next((line for line in stream if line.strip()), "{}")))
            else:
                return
    except (ValueError, csv.Error):
        # Not UTF-8, not JSON: preparation says where.
        return
    if header:
        check_columns(path, header, columns)
