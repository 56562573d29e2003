"""Loads the compiled backend and makes it known to torch.distributed as `ccl`."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from cpufinetune.comms.ccl import build, surroundings
from cpufinetune.comms.ccl.locate import CclError
from cpufinetune.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "ccl"
# All ranks have met already when a group is formed: this is for connections alone.
CONNECT_TIMEOUT = timedelta(seconds=60)


def load(path: Path) -> Any:
    """Load the extension module; the libraries it needs come along.

    Raises:
        CclError: it was built for another torch or another oneCCL.
    """
    if build.MODULE in sys.modules:
        return sys.modules[build.MODULE]
    loader = importlib.machinery.ExtensionFileLoader(build.MODULE, str(path))
    spec = importlib.util.spec_from_file_location(build.MODULE, path, loader=loader)
    if spec is None:
        raise CclError("NotLoadable", f"{path} is no extension module")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise CclError(
            "NotLoadable",
            f"the oneCCL backend does not load with torch {torch.__version__}: {first_line(error)}",
            f"remove {path.parent}, it is compiled anew",
        ) from error
    sys.modules[build.MODULE] = module
    return module


def register(path: Path, variables: Mapping[str, str]) -> Any:
    """Make `init_process_group("ccl")` work in this process; return the extension module.

    Args:
        path: the compiled backend.
        variables: see `environment.variables`; what is set already by hand wins, after a check.

    Raises:
        CclError: it does not load, or oneCCL would hang with these variables.
    """
    _set(variables)
    module = load(path)
    if NAME not in distributed.Backend.backend_list:
        distributed.Backend.register_backend(NAME, _creator(module), devices=["cpu"])
    return module


def register_official(name: str, variables: Mapping[str, str]) -> None:
    """Import the official binding, which makes itself known to torch.distributed as `ccl`.

    Args:
        name: of its module.
        variables: see `register`.

    Raises:
        CclError: oneCCL would hang with these variables.
        ImportError: it is not installed, or not for this torch.
    """
    _set(variables)
    importlib.import_module(name)


def _set(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    surroundings.check()


def _creator(module: Any) -> Any:
    def create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
        return module.create(store, rank, size, timeout, min(timeout, CONNECT_TIMEOUT))

    return create


def group(process_group: Any = None) -> Any:
    """Return the backend object of a process group, the default one if none is given."""
    chosen: Any = process_group or distributed.group.WORLD
    return chosen._get_backend(torch.device("cpu"))  # noqa: SLF001 - the only way to it


def all_reduce_compressed(tensor: torch.Tensor, process_group: Any = None) -> Any:
    """Sum a float32 tensor of any shape in place over the ranks; return the work to wait for.

    It crosses the network as bfloat16: each rank's values are rounded to nearest-even, added in float32 in the order
    of ranks, and the sum is rounded once more. Among ranks of a node nothing is rounded before their sum is.

    Raises:
        TypeError: not float32, or a group of another backend.
    """
    return sys.modules[build.MODULE].all_reduce_compressed(group(process_group), tensor)


def topology(process_group: Any = None) -> str:
    """Say how the group's all-reduces go, such as `4 ranks in shared memory`."""
    return str(sys.modules[build.MODULE].topology(group(process_group)))
