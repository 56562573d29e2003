"""One rank as its launcher sees it: a process, its output, its events, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cpufinetune.report.events import BadEvent, Event, Failure, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cpufinetune.launch.spare import WarmProcess
    from cpufinetune.train.settings import RankSettings

LONGEST_LINE = 1 << 20
# Seconds to read what a dead rank left in its pipes; they are closed with it, so this is a safety net only.
LAST_WORDS = 2.0
# oneCCL warns that it was told to warn less.
NOISE = b"|CCL_WARN| value of CCL_LOG_LEVEL changed"


@dataclass(slots=True)
class RankProcess:
    """A running rank. `status` is the exit code, or minus the signal that ended it."""

    rank: int
    pid: int
    on_event: Callable[[Event, bytes], None]
    on_output: Callable[[int, str], None]
    failure: Failure | None = None
    _descriptor: int = -1
    _readers: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    async def fork(
        cls,
        warm: WarmProcess,
        settings: RankSettings,
        cpus: Sequence[int],
        on_event: Callable[[Event, bytes], None],
        on_output: Callable[[int, str], None],
    ) -> RankProcess:
        """Have the warm process fork this rank, pinned to `cpus`."""
        output_read, output_write = os.pipe()
        events_read, events_write = os.pipe()
        try:
            name = settings.role if settings.role == "prepare" else f"rank-{settings.rank}"
            pid = await warm.fork(name, settings.encode(), cpus, output_write, events_write)
        except BaseException:
            os.close(output_read)
            os.close(events_read)
            raise
        finally:
            os.close(output_write)
            os.close(events_write)
        process = cls(settings.rank, pid, on_event, on_output)
        process._descriptor = os.pidfd_open(pid)
        process._readers = [
            asyncio.create_task(process._read(output_read, process._output)),
            asyncio.create_task(process._read(events_read, process._event)),
        ]
        return process

    async def _read(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:
                    line = b"(part of a line of over 1 MiB was dropped)\n"
                if not line:
                    return
                take(line)
        finally:
            transport.close()

    def _output(self, line: bytes) -> None:
        if NOISE not in line:
            self.on_output(self.rank, line.decode("utf-8", "replace").rstrip("\n"))

    def _event(self, line: bytes) -> None:
        try:
            event = decode(line)
        except BadEvent:
            # A rank that is killed in mid-write leaves half a line.
            return
        if isinstance(event, Failure):
            self.failure = event
        self.on_event(event, line)

    async def wait(self) -> int:
        """Wait for the end of the process and of its output; return its status."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        _, status = os.waitpid(self.pid, 0)  # noqa: ASYNC222 - it has ended: this only collects it
        await asyncio.wait(self._readers, timeout=LAST_WORDS)
        for reader in self._readers:
            reader.cancel()
        return os.waitstatus_to_exitcode(status)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process is still there."""
        if self._descriptor >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)
