"""What a rank keeps between the calls of a test, and how it joins and leaves a world."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch import distributed

from cpufinetune.comms.ccl import backend, environment, locate

LOOPBACK = "127.0.0.1"


@dataclass
class Context:
    """A rank.

    Attributes:
        rank: Its number.
        size: How many there are.
        topology: How it is connected: flat, shared or nodes (two of two ranks).
        store: The TCP store; rank 0 keeps its server.
        gloo: A group of the same ranks over gloo, to compare with.
        kept: What a later call needs.
    """

    rank: int
    size: int = 0
    topology: str = ""
    store: Any = None
    gloo: Any = None
    kept: dict[str, Any] = field(default_factory=dict)


def listen(context: Context) -> int:
    """Start the store; return its port."""
    context.store = distributed.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    return int(context.store.port)


def environ(context: Context, **changes: str | None) -> None:
    """Change environment variables of the rank; None removes one."""
    del context
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def register(context: Context, *, extension: str, size: int, topology: str) -> None:
    """Make the backend known and choose how the ranks are connected."""
    context.size, context.topology = size, topology
    environ(
        context,
        GLOO_SOCKET_IFNAME="lo",
        CPUFINETUNE_SHARED_MEMORY="0" if topology == "flat" else None,
        CPUFINETUNE_NODE=str(context.rank // 2) if topology == "nodes" else None,
    )
    cpus = sorted(os.sched_getaffinity(0))
    workers = [cpus[rank % len(cpus)] for rank in range(size)]
    found = locate.find()
    variables = environment.variables(
        found, interface="lo", local_rank=context.rank, local_world_size=size, workers=workers
    )
    backend.register(Path(extension), variables)


def join(context: Context, *, port: int, timeout: float, gloo: bool = True) -> str:
    """Form the group, and one over gloo beside it; return the topology."""
    if context.store is None:
        context.store = distributed.TCPStore(LOOPBACK, port, wait_for_workers=False)  # type: ignore[attr-defined]
    distributed.init_process_group(
        "ccl",
        store=context.store,
        rank=context.rank,
        world_size=context.size,
        timeout=timedelta(seconds=timeout),
    )
    if gloo:
        context.gloo = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
    return backend.topology()


def leave(context: Context) -> None:
    """Leave all groups."""
    context.gloo = None
    context.kept.clear()
    distributed.destroy_process_group()
    context.store = None
