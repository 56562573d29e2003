"""A node's connection to the coordinator: orders come in, events and endings go out."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import ExitCode
from cpufinetune.launch import wire
from cpufinetune.launch.cause import of_error

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cpufinetune.launch.cause import Cause
    from cpufinetune.launch.crew import Crew
    from cpufinetune.launch.link import Link

PAUSE = 0.5  # seconds before node 0 is called again after it hung up
LONGEST_TEXT = 1 << 14  # characters of a line of output that are passed on


@dataclass(slots=True)
class Member:
    """One node at the coordinator's orders; `run` returns the exit code it was told."""

    crew: Crew
    link: Link
    token: str = ""
    _writer: asyncio.StreamWriter | None = None
    _ranks: asyncio.Task[None] | None = None
    _preparing: asyncio.Task[None] | None = None
    _prepared: bool = False
    _unfit: Cause | None = None
    _interrupted: bool = False

    async def run(self) -> ExitCode:
        """Obey until told to finish; returns INTERRUPTED if asked to stop while there is nobody to tell.

        Raises:
            AttemptError: the coordinator cannot be reached (any more).
        """
        self.crew.warm_up()
        self._prepare_now()
        try:
            while True:
                code = await self._session()
                if code is not None:
                    return code
                # The coordinator died. Its ranks are gone, so are this node's; the next one starts over.
                await self._end_ranks()
                if self._interrupted:
                    return ExitCode.INTERRUPTED
                await asyncio.sleep(PAUSE)
        finally:
            await self._end_ranks()
            if self._preparing is not None:
                self.crew.kill()
                self._preparing.cancel()
            self.crew.close()

    @property
    def connected(self) -> bool:
        """Tell whether there is a coordinator to ask."""
        return self._writer is not None

    def interrupt(self) -> None:
        """Ask the whole gang to stop after a checkpoint."""
        self._interrupted = True
        self._send("interrupt")

    def tell(self, line: bytes) -> None:
        """Pass on a rank's event."""
        self._send("event", line=line.decode("utf-8", "replace"))

    def say(self, rank: int, text: str) -> None:
        """Pass on a line of a rank's output."""
        self._send("output", rank=rank, text=text[:LONGEST_TEXT])

    def _send(self, kind: str, **fields: Any) -> None:
        if self._writer is not None:
            wire.send(self._writer, kind, **fields)

    async def _session(self) -> ExitCode | None:
        reader, self._writer = await self.link.connect()
        self._send("hello", token=self.token, **self.crew.introduce())
        self._tell_readiness()
        try:
            while (message := await wire.receive(reader)) is not None:
                match message["kind"]:
                    case "prepare":
                        self._prepare_now()
                    case "start":
                        self.crew.begin()
                        self._ranks = asyncio.create_task(self._attempt(message))
                    case "stop":
                        self.crew.kill()
                    case "drain":
                        self.crew.drain()
                    case "finish":
                        return ExitCode(message["code"])
        finally:
            self._writer.close()
            self._writer = None
        return None

    def _prepare_now(self) -> None:
        self._unfit = None
        self._preparing = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        self.crew.begin()
        self._unfit = await self._guarded(self.crew.prepare())
        self._prepared = self._unfit is None
        self._tell_readiness()

    def _tell_readiness(self) -> None:
        """Say how preparation went, now or once there is somebody to tell."""
        if self._prepared:
            self._send("ready")
        elif self._unfit is not None:
            self._send("unfit", cause=self._unfit.document())

    async def _attempt(self, order: dict[str, Any]) -> None:
        cause = await self._guarded(self.crew.run(order["attempt"], order["address"], order["port"]))
        if cause is None:
            self._send("done")
        else:
            self._send("ended", cause=cause.document())

    async def _guarded(self, work: Coroutine[Any, Any, Cause | None]) -> Cause | None:
        """Turn a bug into a cause: the gang must hear of it."""
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - whatever it is
            return of_error(self.crew.index, error, now=time.time())

    async def _end_ranks(self) -> None:
        if self._ranks is not None:
            self.crew.kill()
            await asyncio.wait([self._ranks])
            self._ranks = None
