"""The launcher's side of the warm process: start it, and have it fork ranks."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import AttemptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST_MESSAGE = 1 << 16
PR_SET_CHILD_SUBREAPER = 36
# A process that forks must have one thread; numpy's BLAS would start more, and no rank uses it.
ALONE = {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"}
# They bind a thread by its number on the machine, whatever the rank is pinned to: all ranks would share a core.
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
QUIET = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_VERBOSITY": "error",
}


@dataclass(slots=True)
class WarmProcess:
    """A process that has everything imported; `start` returns before the imports are done, `ready` waits for them."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    import_seconds: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def start(cls, environment: Mapping[str, str]) -> WarmProcess:
        """Start it with the thread environment of the ranks: libraries read it when they are loaded."""
        # Forked ranks lose their parent at once; as subreaper this process inherits and waits for them.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", "cpufinetune.launch.warm", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**QUIET, **_inherited(), **environment, **ALONE},
        )
        theirs.close()
        return cls(process, ours)

    async def ready(self) -> None:
        """Wait until everything is imported."""
        answer = await self._receive()
        self.import_seconds = answer["ready"]

    async def preload(self, scratch: str, *, adapters: bool) -> None:
        """Import what the model that was prepared in `scratch` needs."""
        await self._ask({"preload": scratch, "adapters": adapters})

    async def fork(self, name: str, settings: str, cpus: Sequence[int], output: int, events: int) -> int:
        """Fork a rank pinned to `cpus`; return its process id, a child of this process.

        Args:
            name: shown by ps and top.
            settings: an encoded `RankSettings`.
            cpus: ids the rank may run on.
            output: descriptor for the rank's standard output and error.
            events: descriptor for its events.
        """
        request = {"settings": settings, "cpus": list(cpus), "launcher": os.getpid(), "name": name}
        return int((await self._ask(request, [output, events]))["pid"])

    async def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        message = json.dumps(request).encode()
        async with self._turn:
            try:
                await asyncio.to_thread(socket.send_fds, self.channel, [message], list(descriptors))
            except OSError as error:
                raise AttemptError("WarmProcessDied", f"the warm process is gone: {error}") from error
            return await self._receive()

    async def _receive(self) -> dict[str, Any]:
        answer = await asyncio.to_thread(self.channel.recv, LARGEST_MESSAGE)
        if not answer:
            status = await asyncio.to_thread(self.process.wait)
            raise AttemptError("WarmProcessDied", f"the warm process ended with {status}", "see its output above")
        return dict(json.loads(answer))

    def alive(self) -> bool:
        """Tell whether it can still fork."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it; ranks that it forked live on."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in BINDING}
