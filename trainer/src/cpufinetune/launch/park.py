"""PID 1's duties: collecting orphans, while ranks run and while nothing is left to do but to wait for the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

REAP_SECONDS = 5.0
ENDING = (signal.SIGTERM, signal.SIGINT)


def park() -> None:
    """Sleep until asked to end; costs nothing but a process that is there."""
    awaited = {*ENDING, signal.SIGCHLD}
    # Blocked signals stay pending: one that came before this is not missed.
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    while True:
        _collect_all()
        if signal.sigwait(awaited) in ENDING:
            return


def _collect_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


async def reap(own: Callable[[], Collection[int]]) -> None:
    """Collect children that nobody waits for, until cancelled.

    Orphans of any descendant end up here. Those in `own` have somebody who waits for them and needs their status; so
    may one that ended just now, hence the second look.
    """
    seen: frozenset[int] = frozenset()
    while True:
        await asyncio.sleep(REAP_SECONDS)
        found = zombies()
        for pid in (found & seen) - frozenset(own()):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it has ended: this only collects it
        seen = found


def zombies() -> frozenset[int]:
    """Return the children of this process that have ended and are not collected yet."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.add(int(entry.parent.name))
    return frozenset(found)
