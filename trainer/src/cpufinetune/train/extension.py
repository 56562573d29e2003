"""Whether Intel's extension for PyTorch is installed and fits, told without importing either."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from cpufinetune.errors import JobError

if TYPE_CHECKING:
    from cpufinetune.job.document import Job

PACKAGE = "intel-extension-for-pytorch"


def problem() -> str | None:
    """Say why the extension cannot be used; None if it can."""
    try:
        own = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return f"{PACKAGE} is not installed"
    torch = metadata.version("torch")
    # With any other PyTorch it ends the process that imports it.
    return None if _series(own) == _series(torch) else f"{PACKAGE} {own} does not fit PyTorch {torch}"


def _series(version: str) -> list[str]:
    return version.split(".")[:2]


def require(job: Job) -> None:
    """Refuse a job that asks for the extension where it cannot be had.

    Raises:
        JobError: with the cure.
    """
    found = problem() if job.spec.training.intel == "On" else None
    if found:
        raise JobError(
            "IntelUnavailable",
            f"spec.training.intel is On, but {found}",
            "install the extra cpufinetune[intel], use the image of the target intel, or set it to Auto or 'Off'",
        )
