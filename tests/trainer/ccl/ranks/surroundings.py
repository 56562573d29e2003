"""Machines that oneCCL would not work on, seen from a rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from cpufinetune.comms.ccl import backend, build, compile, environment, locate  # noqa: A004 - its name

if TYPE_CHECKING:
    from tests.trainer.ccl.ranks.context import Context


def refusal(context: Context, *, step: str, **arguments: str) -> dict[str, str]:
    """Take a step that is refused; return why."""
    del context
    try:
        globals()[step](**arguments)
    except locate.CclError as error:
        return {"reason": error.reason, "message": error.message, "fix": error.fix}
    raise AssertionError(f"{step} was not refused")


def register(extension: str, **variables: str) -> None:
    """Load the backend with some variables set by hand."""
    os.environ.update(variables)
    found = locate.find()
    backend.register(
        Path(extension),
        environment.variables(found, interface="lo", local_rank=0, local_world_size=1, workers=[0]),
    )


def load(extension: str) -> None:
    """Load an extension module."""
    backend.load(Path(extension))


def ensure(prebuilt: str, **variables: str) -> Any:
    """Look for a compiled backend, or compile it."""
    os.environ.update(variables)
    with mock.patch.object(build, "PREBUILT", Path(prebuilt)):
        return compile.ensure()
