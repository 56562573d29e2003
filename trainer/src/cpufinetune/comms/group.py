"""Joining the world: a process group that is known to work before the first step."""

from __future__ import annotations

import importlib
import os
import socket
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from cpufinetune.comms.ccl import backend, environment, locate
from cpufinetune.comms.ccl.locate import CclError
from cpufinetune.comms.choice import OFFICIAL, OURS, SINGLE, Choice, agree
from cpufinetune.errors import AttemptError

if TYPE_CHECKING:
    from cpufinetune.train.settings import RankSettings

BACKLOG = 4096
# A collective that takes longer is dead; a hang is found earlier, by the launcher's stall clock.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)


def join(settings: RankSettings) -> Choice:
    """Form the default process group and prove it with an all-reduce of known values.

    All ranks use the same backend: the one that preparation found, or gloo if some rank cannot.

    Raises:
        AttemptError: peers did not come in time, or the sum is wrong.
    """
    if settings.world_size == 1:
        return SINGLE
    os.environ["GLOO_SOCKET_IFNAME"] = settings.interface
    try:
        store = _meet(settings)
        choice = agree(_exchange(store, "choice", load(settings), settings))
        if choice.backend == "ccl":
            choice = _try(store, choice, settings)
        if settings.insist and choice.backend != "ccl":
            raise AttemptError("BackendFailed", f"spec.node.backend is CCL: {choice.reason}", "use Auto or Gloo")
        if choice.backend == "gloo":
            leave()
            _form(distributed.PrefixStore("gloo", store), choice, settings)  # type: ignore[attr-defined]
    except (RuntimeError, ValueError, OSError) as error:
        raise AttemptError(
            "JoinFailed",
            f"rank {settings.rank} could not join at {settings.master_address}:{settings.master_port}: {error}",
        ) from error
    verify(settings.rank, settings.world_size)
    return choice


def load(settings: RankSettings) -> Choice:
    """Load what preparation chose for this node; gloo with the reason if that fails."""
    choice = Choice.read(Path(settings.scratch))
    if choice.backend != "ccl":
        return choice
    try:
        variables = ccl_variables(settings)
        if choice.binding == OURS:
            backend.register(Path(choice.library), variables)
        else:
            os.environ.update(variables)
            # Importing it is what makes it known to torch.distributed.
            importlib.import_module(OFFICIAL)
    except (CclError, ImportError, OSError) as error:
        return Choice("gloo", str(error).splitlines()[0])
    return replace(choice, environment=variables)


def ccl_variables(settings: RankSettings) -> dict[str, str]:
    """Return the environment of oneCCL in this rank.

    Raises:
        CclError: there is no usable oneCCL.
    """
    return environment.variables(
        locate.find(),
        interface=settings.interface,
        local_rank=settings.local_rank,
        local_world_size=settings.local_world_size,
        workers=settings.workers,
    )


def _meet(settings: RankSettings) -> Any:
    return distributed.TCPStore(  # type: ignore[attr-defined]  # exported at run time only
        settings.master_address,
        settings.master_port,
        settings.world_size,
        is_master=settings.rank == 0,
        timeout=timedelta(seconds=settings.join_seconds),
        master_listen_fd=_listen(settings) if settings.rank == 0 else None,
    )


def _exchange(store: Any, topic: str, mine: Choice, settings: RankSettings) -> list[Choice]:
    """Tell all ranks, and hear of all, in the order of ranks."""
    store.set(f"{topic}/{settings.rank}", mine.encode())
    return [Choice.decode(store.get(f"{topic}/{rank}").decode()) for rank in range(settings.world_size)]


def _try(store: Any, choice: Choice, settings: RankSettings) -> Choice:
    """Form the group over oneCCL; return the choice, or gloo if that failed on any rank."""
    outcome = choice
    try:
        _form(distributed.PrefixStore("ccl", store), choice, settings)  # type: ignore[attr-defined]
    except (RuntimeError, ValueError) as error:
        outcome = Choice("gloo", str(error).splitlines()[0])
    return agree(_exchange(store, "outcome", outcome, settings))


def _form(store: Any, choice: Choice, settings: RankSettings) -> None:
    distributed.init_process_group(
        choice.backend,
        store=store,
        rank=settings.rank,
        world_size=settings.world_size,
        timeout=COLLECTIVE_TIMEOUT,
    )


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
