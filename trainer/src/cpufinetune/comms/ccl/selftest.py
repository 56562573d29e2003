"""Two processes that add and broadcast over oneCCL, before ranks depend on it: it may hang or crash."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import distributed

from cpufinetune.comms.ccl import backend, environment
from cpufinetune.comms.ccl.locate import CclError
from cpufinetune.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cpufinetune.comms.ccl.locate import OneCcl

RANKS = 2
LIMIT = 20.0  # seconds; it takes less than one, but not on a machine that is busy starting pods
PR_SET_PDEATHSIG = 1
PAUSE = 0.01
COUNT = 100_003  # elements: several messages, and no round number


# Depends on the test alone, not on what somebody has set by hand for the ranks, which have the rest in common with it.
FORCED = ("CCL_LOCAL_RANK", "CCL_LOCAL_SIZE", "CCL_WORKER_AFFINITY", "FI_TCP_IFACE", "CCL_KVS_IFACE")


def run(register: Callable[[Mapping[str, str]], object], oneccl: OneCcl | None, scratch: Path) -> None:
    """Run the test in forked processes; the calling one must have a single thread.

    Args:
        register: makes `ccl` known to torch.distributed; it is given the variables that the test would like to set.
        oneccl: where the libraries are; None if the binding brings them.
        scratch: folder for the meeting of the two.

    Raises:
        CclError: with what the processes died of.
    """
    meeting = scratch / f".selftest-{os.getpid()}"
    outputs = [scratch / f"{meeting.name}-{rank}" for rank in range(RANKS)]
    children = [_fork(register, oneccl, meeting, rank, output) for rank, output in enumerate(outputs)]
    try:
        statuses = _wait(children)
        errors = [output.read_text(encoding="utf-8") if output.exists() else "" for output in outputs]
    finally:
        for path in (meeting, *outputs):
            path.unlink(missing_ok=True)
    for status, error in zip(statuses, errors, strict=True):
        if status is None:
            raise CclError("SelfTestFailed", f"a test of oneCCL did not end within {LIMIT:.0f} s")
        if status < 0:
            raise CclError("SelfTestFailed", f"a test of oneCCL died of {signal.Signals(-status).name}")
        if status > 0:
            raise CclError("SelfTestFailed", f"a test of oneCCL failed: {error or f'exit code {status}'}")


def _fork(
    register: Callable[[Mapping[str, str]], object], oneccl: OneCcl | None, meeting: Path, rank: int, output: Path
) -> int:
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _test(register, oneccl, meeting, rank)
    except BaseException as error:  # noqa: BLE001 - a forked process must not return into its parent's code
        output.write_text(first_line(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)


def _wait(children: list[int]) -> list[int | None]:
    """Return how each ended, None for one that had to be killed; the first failure ends the others."""
    statuses: dict[int, int | None] = {}
    deadline = time.monotonic() + LIMIT
    while len(statuses) < len(children) and time.monotonic() < deadline and not any(statuses.values()):
        for child in children:
            if child not in statuses:
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    statuses[child] = os.waitstatus_to_exitcode(status)
        time.sleep(PAUSE)
    failed = any(statuses.values())
    for child in children:
        if child not in statuses:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            # Who was only waiting for the one that failed has nothing to tell.
            statuses[child] = 0 if failed else None
    return [statuses[child] for child in children]


def _test(register: Callable[[Mapping[str, str]], object], oneccl: OneCcl | None, meeting: Path, rank: int) -> None:
    # Over oneCCL, not through memory; on loopback, which is always there.
    os.environ["CPUFINETUNE_SHARED_MEMORY"] = "0"
    worker = [min(os.sched_getaffinity(0))] * RANKS
    variables = environment.variables(oneccl, interface="lo", local_rank=rank, local_world_size=RANKS, workers=worker)
    os.environ.update({name: variables[name] for name in FORCED})
    register(variables)
    store = distributed.FileStore(str(meeting), RANKS)  # type: ignore[attr-defined]  # exported at run time only
    distributed.init_process_group(
        backend.NAME, store=store, rank=rank, world_size=RANKS, timeout=timedelta(seconds=LIMIT)
    )
    for kind in (torch.float32, torch.bfloat16):
        values = torch.arange(COUNT).remainder(7).to(kind)
        distributed.all_reduce(values)
        if not torch.equal(values, torch.arange(COUNT).remainder(7).mul(RANKS).to(kind)):
            raise CclError("WrongSum", f"its sum of {kind} is wrong")
    values = torch.full((COUNT,), rank)
    distributed.broadcast(values, src=1)
    if not bool((values == 1).all()):
        raise CclError("WrongBroadcast", "its broadcast is wrong")
