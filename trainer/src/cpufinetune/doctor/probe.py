"""Tries PyTorch: a program of its own, for what it imports may end it. `deep` starts it and reads its lines.

Each trial prints its name as it begins, then what came of it; a trial without an end is where the process died.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from cpufinetune.comms.ccl import build, locate
from cpufinetune.errors import CpuFineTuneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIDE = 1024  # of the matrices
SECONDS = 0.3  # for each format, after the first product, which compiles the kernel
FEWEST, MOST = 2, 50
TORCH = "torch"
BINDINGS, IPEX = "oneccl_bindings_for_pytorch", "intel_extension_for_pytorch"

Finding = dict[str, Any]


def _torch() -> Finding:
    started = time.perf_counter()
    import torch  # noqa: PLC0415 - what is tried

    return {"version": torch.__version__, "seconds": time.perf_counter() - started, "threads": torch.get_num_threads()}


def _product(format_name: str) -> Finding:
    """Time a product of two square matrices; the best time counts, since others may use the machine."""
    import torch  # noqa: PLC0415 - the trial before has imported it

    left, right = (torch.randn(SIDE, SIDE).to(getattr(torch, format_name)) for _ in range(2))
    times: list[float] = []
    torch.mm(left, right)
    started = time.perf_counter()
    while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() - started < SECONDS):
        before = time.perf_counter()
        torch.mm(left, right)
        times.append(time.perf_counter() - before)
    return {"gflops": 2 * SIDE**3 / min(times) / 1e9}


def _oneccl() -> Finding:
    """Load the compiled backend, if there is one."""
    path = build.built(locate.find())
    if path is None:
        return {"built": False}
    spec = importlib.util.spec_from_file_location(build.MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a module")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return {"built": True, "name": path.parent.name}


def _import(name: str) -> Finding:
    return {"version": str(getattr(importlib.import_module(name), "__version__", "unknown"))}


def trials() -> Iterator[tuple[str, Callable[[], Finding]]]:
    """List the trials; the likeliest to end the process come last."""
    yield TORCH, _torch
    yield "fp32", partial(_product, "float32")
    yield "bf16", partial(_product, "bfloat16")
    yield "oneCCL", _oneccl
    for name in (BINDINGS, IPEX):
        if importlib.util.find_spec(name) is not None:
            yield name, partial(_import, name)


def attempt(trial: Callable[[], Finding]) -> Finding:
    """Run a trial; return what it found, or its error."""
    try:
        return trial()
    except CpuFineTuneError as error:
        return {"error": error.message, "cure": error.fix}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - libraries fail in every way, and this reports it
        return {"error": f"{type(error).__name__}: {error}"}


def run(out: TextIO) -> None:
    """Run the trials, one after the other; without PyTorch the others have nothing to try."""
    for name, trial in trials():
        print(json.dumps({"trial": name}), file=out, flush=True)
        finding = attempt(trial)
        print(json.dumps({"trial": name, **finding, "done": True}), file=out, flush=True)
        if name == TORCH and "error" in finding:
            return


def main(cpus: str) -> None:
    """Run on the given CPUs; libraries that print get standard error, so that the lines stay whole."""
    os.sched_setaffinity(0, map(int, cpus.split(",")))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    run(out)


if __name__ == "__main__":
    main(sys.argv[1])
