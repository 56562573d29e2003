"""A node's connection to the coordinator: orders come in, events and endings go out."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.cores import describe
from cpufinetune.errors import AttemptError, ExitCode
from cpufinetune.launch import wire
from cpufinetune.launch.cause import of_error

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cpufinetune.launch.cause import Cause
    from cpufinetune.launch.node import Node

CONNECT_PAUSE = 0.1  # seconds between tries
LONGEST_TEXT = 1 << 14  # characters of a line of output that are passed on


@dataclass(slots=True)
class Member:
    """One node at the coordinator's orders; `run` returns the exit code it was told."""

    node: Node
    coordinator: str
    connect_seconds: float
    token: str = ""
    port: int = wire.COORDINATOR_PORT
    _writer: asyncio.StreamWriter | None = None
    _ranks: asyncio.Task[None] | None = None
    _preparing: asyncio.Task[None] | None = None
    _prepared: bool = False

    async def run(self) -> ExitCode:
        """Obey until told to finish.

        Raises:
            AttemptError: the coordinator cannot be reached (any more).
        """
        self.node.warm_up()
        try:
            while True:
                code = await self._session()
                if code is not None:
                    return code
                # The coordinator died. Its ranks are gone, so are this node's; the next one starts over.
                await self._end_ranks()
        finally:
            await self._end_ranks()
            if self._preparing is not None:
                self.node.kill()
                self._preparing.cancel()
            self.node.close()

    def interrupt(self) -> None:
        """Ask the whole gang to stop after a checkpoint."""
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
        reader, self._writer = await self._connect()
        self._send("hello", token=self.token, **self._introduce())
        if self._prepared:
            self._send("ready")
        elif self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare())
        try:
            while (message := await wire.receive(reader)) is not None:
                match message["kind"]:
                    case "prepare":
                        self._preparing = asyncio.create_task(self._prepare())
                    case "start":
                        self.node.begin()
                        self._ranks = asyncio.create_task(self._attempt(message))
                    case "stop":
                        self.node.kill()
                    case "drain":
                        self.node.drain()
                    case "finish":
                        return ExitCode(message["code"])
        finally:
            self._writer.close()
            self._writer = None
        return None

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.connect_seconds
        while True:
            try:
                return await asyncio.open_connection(self.coordinator, self.port, limit=wire.LONGEST_MESSAGE)
            except OSError as error:
                if loop.time() >= deadline:
                    raise AttemptError(
                        "CoordinatorMissing", f"node 0 at {self.coordinator}:{self.port} does not answer: {error}"
                    ) from error
                await asyncio.sleep(CONNECT_PAUSE)

    def _introduce(self) -> dict[str, Any]:
        layout = self.node.layout
        return {
            "node": self.node.index,
            "ranks": len(layout.ranks),
            "layout": describe(layout),
            "notes": layout.notes,
        }

    async def _prepare(self) -> None:
        self.node.begin()
        cause = await self._guarded(self.node.prepare())
        if cause is not None:
            self._send("unfit", cause=cause.document())
            return
        self._prepared = True
        self._send("ready")

    async def _attempt(self, order: dict[str, Any]) -> None:
        cause = await self._guarded(self.node.run(order["attempt"], order["address"], order["port"]))
        if cause is None:
            self._send("done")
        else:
            self._send("ended", cause=cause.document())

    async def _guarded(self, work: Coroutine[Any, Any, Cause | None]) -> Cause | None:
        """Turn a bug into a cause: the gang must hear of it."""
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - whatever it is
            return of_error(self.node.index, error, now=time.time())

    async def _end_ranks(self) -> None:
        if self._ranks is not None:
            self.node.kill()
            await asyncio.wait([self._ranks])
            self._ranks = None
