"""Joining the world: a process group that is known to work before the first step."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import distributed

from cpufinetune.errors import AttemptError

if TYPE_CHECKING:
    from cpufinetune.train.settings import RankSettings

# A collective that takes longer is dead; a hang is found earlier, by the launcher's stall clock.
BACKLOG = 4096
COLLECTIVE_TIMEOUT = timedelta(minutes=30)


def join(settings: RankSettings) -> None:
    """Form the default process group and prove it with an all-reduce of known values.

    Raises:
        AttemptError: peers did not come in time, or the sum is wrong.
    """
    if settings.world_size == 1:
        return
    os.environ["GLOO_SOCKET_IFNAME"] = settings.interface
    try:
        listener = _listen(settings) if settings.rank == 0 else None
        store = distributed.TCPStore(  # type: ignore[attr-defined]  # exported at run time only
            settings.master_address,
            settings.master_port,
            settings.world_size,
            is_master=settings.rank == 0,
            timeout=timedelta(seconds=settings.join_seconds),
            master_listen_fd=listener,
        )
        distributed.init_process_group(
            "gloo",
            store=store,
            rank=settings.rank,
            world_size=settings.world_size,
            timeout=COLLECTIVE_TIMEOUT,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise AttemptError(
            "JoinFailed",
            f"rank {settings.rank} could not join at {settings.master_address}:{settings.master_port}: {error}",
        ) from error
    verify(settings.rank, settings.world_size)


def _listen(settings: RankSettings) -> int:
    """Listen at the master's own address; the store by itself would at all of the machine's."""
    family = socket.AF_INET6 if ":" in settings.master_address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.master_address, settings.master_port))
        listener.listen(BACKLOG)
        return listener.detach()


def verify(rank: int, world_size: int) -> None:
    """Sum known values over all ranks and compare."""
    probe = torch.tensor([rank + 1, 1], dtype=torch.float64)
    distributed.all_reduce(probe)
    expected = torch.tensor([world_size * (world_size + 1) / 2, world_size], dtype=torch.float64)
    if not torch.equal(probe, expected):
        raise AttemptError("WrongSum", f"all-reduce gave {probe.tolist()} instead of {expected.tolist()}")


def leave() -> None:
    """Leave the process group, if one was joined."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
