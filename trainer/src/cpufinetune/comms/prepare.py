"""What a node can do for collectives, found out before the ranks start, in a process that may crash."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cpufinetune.comms.ccl import backend, build, locate, selftest, surroundings
from cpufinetune.comms.ccl import compile as compiling
from cpufinetune.comms.ccl.locate import CclError
from cpufinetune.comms.choice import OFFICIAL, OURS, Choice, binding_version, insisted, official, settled

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.job.document import Backend

CRASHED = 3
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Search:
    """A child process that looks while this one goes on; `check` and `finish` collect what it has found."""

    pid: int | None
    wanted: Backend
    scratch: Path

    @classmethod
    def begin(cls, wanted: Backend, world_size: int, scratch: Path) -> Search:
        """Start looking.

        Args:
            wanted: the job's `spec.node.backend`.
            world_size: ranks of the job; a single one needs no collectives.
            scratch: folder of the node, for the result.
        """
        told = settled(wanted, world_size)
        if told is not None:
            told.write(scratch)
            return cls(None, wanted, scratch)
        pid = os.fork()
        if pid == 0:
            os._exit(_look(scratch))
        return cls(pid, wanted, scratch)

    def check(self) -> None:
        """Look whether it has ended, to be called now and then.

        Raises:
            CclError: see `finish`.
        """
        if self.pid is not None and self._ended(os.WNOHANG):
            self.finish()

    def finish(self) -> Choice:
        """Wait for the result, and leave it in the scratch folder for the ranks.

        Raises:
            CclError: the job insists on oneCCL, and this node has no usable one.
        """
        if self.pid is not None:
            self._ended(0)
        choice = Choice.read(self.scratch)
        if self.wanted == "CCL" and choice.backend == "gloo":
            raise insisted(choice.reason, choice.fix)
        return choice

    def _ended(self, options: int) -> bool:
        pid, status = os.waitpid(self.pid or 0, options)
        if pid == 0:
            return False
        self.pid = None
        if status != 0:
            Choice("gloo", "the search for oneCCL died on the way").write(self.scratch)
        return True


def _look(scratch: Path) -> int:
    # If preparation ends early, for bad data, nobody waits for this.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        choose(scratch).write(scratch)
    except BaseException:  # noqa: BLE001 - a forked process must not return into its parent's code
        traceback.print_exc()
        return CRASHED
    return 0


def choose(scratch: Path) -> Choice:
    """Return what this node would use: the official binding, ours if it passes a test, or gloo."""
    first = official(build.torch_version(), binding_version())
    if isinstance(first, Choice):
        with contextlib.suppress(CclError):  # Ours may do where it fails.
            selftest.run(partial(backend.register_official, OFFICIAL), None, scratch)
            return first
    try:
        # What somebody has set by hand is wrong in the next attempt, too.
        surroundings.check()
        oneccl = locate.find()
        library = compiling.ensure()
        selftest.run(partial(backend.register, library), oneccl, scratch)
    except CclError as error:
        return Choice.instead(error)
    return Choice("ccl", f"oneCCL {oneccl.version} ({oneccl.source}) passed a test", OURS, str(library))
