"""What goes wrong, seen from a rank."""

from __future__ import annotations

import ctypes
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tests.trainer.ccl.ranks.context import leave
from torch import distributed
from torch.distributed import ReduceOp

from cpufinetune.comms.ccl import backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.trainer.ccl.ranks.context import Context

LARGE = 3 << 20  # elements: several chunks of a message, which are on their way at once
SETTLES = 10.0  # seconds
CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x4000 | 0x40000
SHARED_MEMORY = b"/dev/shm"
OWN_FILES = Path("/proc/self/fd")
OWN_THREADS = Path("/proc/self/task")


def add(context: Context, count: int = LARGE) -> float:
    """Add once."""
    tensor = torch.full((count,), float(context.rank))
    distributed.all_reduce(tensor)
    return float(tensor[-1])


def add_on_and_on(context: Context) -> None:
    """Add until something goes wrong."""
    while True:
        add(context)


def receive(context: Context, source: int) -> None:
    """Wait for a message that never comes."""
    del context
    distributed.recv(torch.empty(10), source)


def hand_in(context: Context, late: float) -> list[float]:
    """Rank 0 receives from everyone in turn; each leaves when it has sent, the last one begins `late` seconds later."""
    if context.rank == context.size - 1:
        time.sleep(late)
    if context.rank != 0:
        distributed.send(torch.full((LARGE,), float(context.rank)), 0)
        leave(context)
        return []
    received = []
    for peer in range(1, context.size):
        tensor = torch.empty(LARGE)
        distributed.recv(tensor, peer)
        received.append(float(tensor[-1]))
    return received


def hurry_away(context: Context) -> None:
    """Leave while operations are queued that nobody has waited for."""
    for _ in range(30):
        distributed.all_reduce(torch.ones(300_000), async_op=True)
        distributed.all_reduce_coalesced([torch.ones(3), torch.ones(100_000)], async_op=True)
    distributed.destroy_process_group()
    context.store = None


def abandon(context: Context) -> None:
    """Wait for something that never comes, without keeping it, and go on to the end of the script."""
    if context.rank == 0:
        distributed.irecv(torch.empty(10), 1)


def wrong_calls(context: Context) -> list[tuple[type[Exception], str, Callable[[], Any]]]:
    """List calls that are refused, with what they are refused with."""
    size, even = context.size, torch.ones(4 * context.size)
    own: Any = backend.group()
    other = (context.rank + 1) % size

    def summed(tensor: torch.Tensor, op: Any = ReduceOp.SUM) -> Callable[[], Any]:
        return lambda: distributed.all_reduce(tensor, op)

    many = [torch.ones(2) for _ in range(size + 1)]
    halves = [torch.ones(2).half() for _ in range(size)]
    longer = [torch.ones(3) for _ in range(size)]
    return [
        (ValueError, "contiguous", summed(torch.ones(4, 4).t())),
        (ValueError, "contiguous", lambda: distributed.broadcast(torch.ones(8)[::2], 0)),
        (ValueError, "dense", lambda: own.allreduce([torch.ones(3).to_sparse()]).wait()),
        (TypeError, "ComplexFloat", lambda: own.allreduce([torch.ones(3, dtype=torch.complex64)]).wait()),
        (TypeError, "Float8", summed(torch.ones(3).to(torch.float8_e5m2))),
        (TypeError, "AVG", summed(torch.ones(3, dtype=torch.int32), ReduceOp.AVG)),
        (RuntimeError, "SUM, AVG", summed(torch.ones(3, dtype=torch.int32), ReduceOp.BAND)),
        (ValueError, f"list of {size}", lambda: distributed.all_gather(many, torch.ones(2))),
        (ValueError, "itself", lambda: distributed.all_gather(longer, torch.ones(2))),
        (ValueError, "one type", lambda: own.allgather([halves], [torch.ones(2)]).wait()),
        (ValueError, "times", lambda: own._allgather_base(torch.ones(3), torch.ones(2)).wait()),
        (ValueError, "times", lambda: distributed.reduce_scatter_tensor(torch.ones(3), torch.ones(2))),
        (ValueError, f"list of {size}", lambda: own.reduce_scatter([torch.ones(2)], [many]).wait()),
        (ValueError, "elements", lambda: distributed.reduce_scatter(torch.ones(2), longer)),
        (ValueError, "add up to", lambda: distributed.all_to_all_single(even, even.clone(), [1] * size, [1] * size)),
        (ValueError, "divisible", lambda: distributed.all_to_all_single(torch.ones(size + 1), torch.ones(size + 1))),
        (ValueError, "itself", lambda: distributed.all_to_all(longer, many[:size])),
        (ValueError, "without dimensions", lambda: distributed.all_to_all_single(torch.tensor(1.0), torch.tensor(1.0))),
        (RuntimeError, "tags", lambda: distributed.send(torch.ones(3), other, tag=5)),
        (RuntimeError, "tags", lambda: distributed.recv(torch.ones(3), other, tag=5)),
        (ValueError, "itself", lambda: own.send([torch.ones(3)], context.rank, 0).wait()),
        (ValueError, "no rank 9", lambda: own.broadcast(torch.ones(3), 9).wait()),
        (TypeError, "float32", lambda: backend.all_reduce_compressed(torch.ones(3).double())),
        (TypeError, "gloo", lambda: backend.all_reduce_compressed(torch.ones(3), context.gloo)),
        (ValueError, "contiguous", lambda: backend.all_reduce_compressed(torch.ones(4, 4).t())),
    ]


def refused(context: Context) -> int:
    """Make calls that are wrong; the group must go on working."""
    calls = wrong_calls(context)
    for number, (kind, text, call) in enumerate(calls):
        try:
            call()
        except Exception as error:  # noqa: BLE001 - which one is looked at
            found: Exception | None = error
        else:
            found = None
        assert isinstance(found, kind), (number, text, found)
        assert text in str(found), (number, text, found)
    assert add(context, 100) == sum(range(context.size))
    return len(calls)


def little_shared_memory(context: Context, size: str) -> None:
    """See a small /dev/shm, in a mount namespace of its own, which other ranks may enter."""
    del context
    libc = ctypes.CDLL(None, use_errno=True)
    for result in (
        libc.unshare(CLONE_NEWNS),
        libc.mount(None, b"/", None, MS_REC_PRIVATE, None),
        libc.mount(b"tmpfs", SHARED_MEMORY, b"tmpfs", 0, f"size={size}".encode()),
    ):
        if result != 0:
            raise OSError(ctypes.get_errno(), "no mount namespace of its own")


def same_shared_memory(context: Context, pid: int) -> None:
    """See the /dev/shm of another process."""
    del context
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/{pid}/ns/mnt").open(encoding="utf-8") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "the mount namespace cannot be entered")


def threads() -> int:
    """Count this process's."""
    return len(list(OWN_THREADS.iterdir()))


def resources() -> dict[str, int]:
    """Return what a leak would show in."""
    # The name of a segment begins with the process that made it.
    segments = list(Path("/dev/shm").glob(f"cpufinetune-{os.getpid()}-*"))  # noqa: S108 - that is where it is
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return {
        "threads": threads(),
        "files": len(list(OWN_FILES.iterdir())),
        "maps": Path("/proc/self/maps").read_text(encoding="utf-8").count("/dev/shm/cpufinetune"),  # noqa: S108
        "segments": len(segments),
        "kib": pages * resource.getpagesize() // 1024,
    }


def cycle(context: Context, number: int, settled: list[int] | None = None) -> dict[str, int]:
    """Form a group and leave it again, many times; return the resources in use at the end.

    Threads end by themselves a little later, and are waited for until there are as many as `settled` says by rank.
    """
    for _ in range(number):
        group: Any = distributed.new_group(backend="ccl")
        tensor = torch.ones(100_000)
        distributed.all_reduce(tensor, group=group)
        assert tensor[0] == context.size
        distributed.destroy_process_group(group)
    distributed.barrier()
    time.sleep(0.3)
    deadline = time.monotonic() + SETTLES
    while settled and threads() > settled[context.rank] and time.monotonic() < deadline:
        time.sleep(0.05)
    return resources()


def nothing(context: Context) -> int:
    """Return the id of the process."""
    del context
    return os.getpid()
