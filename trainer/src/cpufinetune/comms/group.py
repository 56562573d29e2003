"""Joining the world: a process group that is known to work before the first step."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from cpufinetune.comms.ccl import backend, environment, locate
from cpufinetune.comms.ccl.locate import CclError
from cpufinetune.comms.choice import OURS, SINGLE, Choice, agree
from cpufinetune.errors import AttemptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.train.settings import RankSettings

BACKLOG = 4096
# A collective that takes longer is dead; a hang is found earlier, by the launcher's stall clock.
COLLECTIVE_TIMEOUT = timedelta(minutes=30)
# For the first sum, of sixteen bytes: the ranks have just met.
PROOF_TIMEOUT = timedelta(minutes=2)
LEAVE_TIMEOUT = timedelta(seconds=10)
STOP = "stop"


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
            _take_leave(store, settings)
            cure = choice.fix or "use Auto or Gloo"
            raise AttemptError("BackendFailed", f"spec.node.backend is CCL: {choice.reason}", cure)
        if choice.backend == "gloo":
            _start_over()
            _form(distributed.PrefixStore("gloo", store), choice, settings)  # type: ignore[attr-defined]
            verify(settings.rank, settings.world_size)
    except (RuntimeError, ValueError, OSError) as error:
        raise AttemptError(
            "JoinFailed",
            f"rank {settings.rank} could not join at {settings.master_address}:{settings.master_port}: {error}",
        ) from error
    return choice


def load(settings: RankSettings) -> Choice:
    """Load what preparation chose for this node; gloo with the reason if that fails."""
    choice = Choice.read(Path(settings.scratch))
    if choice.backend != "ccl":
        return choice
    try:
        variables = ccl_variables(settings, choice.binding)
        if choice.binding == OURS:
            backend.register(Path(choice.library), variables)
        else:
            backend.register_official(choice.binding, variables)
    except (CclError, ImportError, OSError) as error:
        return Choice.instead(error)
    # What somebody has set by hand is in force instead of ours.
    return replace(choice, environment={name: os.environ[name] for name in variables})


def ccl_variables(settings: RankSettings, binding: str) -> dict[str, str]:
    """Return the environment of oneCCL in this rank.

    Raises:
        CclError: there is no usable oneCCL for our own binding.
    """
    return environment.variables(
        # The official one brings its own.
        locate.find() if binding == OURS else None,
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


def _take_leave(store: Any, settings: RankSettings) -> None:
    """End without a group: rank 0 takes the store along, in which others may be reading why."""
    store.set(f"leave/{settings.rank}", "")
    if settings.rank == 0:
        # Whoever does not answer has other troubles, and tells of them.
        with contextlib.suppress(RuntimeError):
            store.wait([f"leave/{rank}" for rank in range(settings.world_size)], LEAVE_TIMEOUT)


def _try(store: Any, choice: Choice, settings: RankSettings) -> Choice:
    """Form the group over oneCCL and prove it; return the choice, or gloo if either failed on any rank."""
    ccl = distributed.PrefixStore("ccl", store)  # type: ignore[attr-defined]  # exported at run time only
    agreed = _attempt(store, "formed", choice, settings, partial(_form, ccl, choice, settings))
    if agreed.backend == "ccl":
        # Not before: the reason is theirs who failed to form it, not theirs who then waited for them.
        agreed = _attempt(store, "proven", choice, settings, partial(verify, settings.rank, settings.world_size))
    return agreed


def _attempt(store: Any, topic: str, choice: Choice, settings: RankSettings, step: Callable[[], None]) -> Choice:
    """Do it; return the choice, or gloo with the reason if it failed on any rank."""
    outcome = choice
    try:
        step()
    except (RuntimeError, ValueError, AttemptError) as error:
        outcome = Choice.instead(error)
    return agree(_exchange(store, topic, outcome, settings))


def _form(store: Any, choice: Choice, settings: RankSettings) -> None:
    distributed.init_process_group(
        choice.backend,
        store=store,
        rank=settings.rank,
        world_size=settings.world_size,
        timeout=COLLECTIVE_TIMEOUT,
    )


def _start_over() -> None:
    """Forget a group that did not work out, so that the next one has the same name on all ranks.

    torch counts the groups it is asked for, also one that fails on some ranks only, and names the next one by it.
    """
    leave()
    distributed.distributed_c10d._world.group_count = 0  # noqa: SLF001 - no other way


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
    options = distributed.AllreduceOptions()
    options.timeout = PROOF_TIMEOUT
    chosen: Any = distributed.group.WORLD
    chosen.allreduce([probe], options).wait()
    expected = torch.tensor([world_size * (world_size + 1) / 2, world_size], dtype=torch.float64)
    if not torch.equal(probe, expected):
        raise AttemptError("WrongSum", f"all-reduce gave {probe.tolist()} instead of {expected.tolist()}")


def asked_to_stop(*, mine: bool) -> bool:
    """Tell all ranks of this attempt that this one was asked to stop, or hear it of another; waits for nobody."""
    if not distributed.is_initialized():
        return mine
    store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - every attempt has its own
    if mine:
        store.set(STOP, "")
    return mine or bool(store.check([STOP]))


def part() -> None:
    """Wait for all ranks, then leave: who goes while others are busy is waited for in vain."""
    if distributed.is_initialized():
        # Whoever is missing has other troubles, and tells of them.
        with contextlib.suppress(RuntimeError):
            distributed.barrier()
        leave()


def leave() -> None:
    """Leave the process group, if one was joined."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
