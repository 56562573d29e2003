"""The job document: read it, check it, and get it as frozen dataclasses.

    job = load(pathlib.Path("finetune.yaml"), ["training.epochs=1"])

`InvalidJob` is the only error, a `ValueError` that holds every `Problem` found.
"""

from __future__ import annotations

from cpufinetune.job.document import Job
from cpufinetune.job.load import load
from cpufinetune.job.parse import parse, to_document
from cpufinetune.job.problems import InvalidJob, Problem
from cpufinetune.job.validate import validate

__all__ = ["InvalidJob", "Job", "Problem", "load", "parse", "to_document", "validate"]
