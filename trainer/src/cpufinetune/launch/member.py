"""A node's connection to the coordinator: orders come in, events and endings go out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.cores import describe
from cpufinetune.errors import AttemptError, ExitCode
from cpufinetune.launch import wire

if TYPE_CHECKING:
    from cpufinetune.launch.cause import Cause
    from cpufinetune.launch.node import Node

CONNECT_PAUSE = 0.1  # seconds between tries


@dataclass(slots=True)
class Member:
    """One node at the coordinator's orders; `run` returns the exit code it was told."""

    node: Node
    coordinator: str
    connect_seconds: float
    port: int = wire.COORDINATOR_PORT
    _writer: asyncio.StreamWriter | None = None
    _ranks: asyncio.Task[None] | None = None
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
            self.node.close()

    def interrupt(self) -> None:
        """Ask the whole gang to stop after a checkpoint."""
        self._send("interrupt")

    def tell(self, line: bytes) -> None:
        """Pass on a rank's event."""
        self._send("event", line=line.decode("utf-8", "replace"))

    def say(self, rank: int, text: str) -> None:
        """Pass on a line of a rank's output."""
        self._send("output", rank=rank, text=text)

    def _send(self, kind: str, **fields: Any) -> None:
        if self._writer is not None:
            wire.send(self._writer, kind, **fields)

    async def _session(self) -> ExitCode | None:
        reader, self._writer = await self._connect()
        self._send("hello", node=self.node.index, layout=describe(self.node.layout), notes=self.node.layout.notes)
        prepare = asyncio.create_task(self._prepare())
        try:
            while (message := await wire.receive(reader)) is not None:
                match message["kind"]:
                    case "start":
                        self._ranks = asyncio.create_task(self._attempt(message))
                    case "stop":
                        self.node.kill()
                    case "drain":
                        self.node.drain()
                    case "finish":
                        return ExitCode(message["code"])
        finally:
            prepare.cancel()
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

    async def _prepare(self) -> None:
        if not self._prepared:
            cause = await self.node.prepare()
            if cause is not None:
                self._send("unfit", cause=cause.document())
                return
            self._prepared = True
        self._send("ready")

    async def _attempt(self, order: dict[str, Any]) -> None:
        cause: Cause | None = await self.node.run(order["attempt"], order["address"], order["port"])
        if cause is None:
            self._send("done")
        else:
            self._send("ended", cause=cause.document())

    async def _end_ranks(self) -> None:
        if self._ranks is not None:
            self.node.kill()
            await asyncio.wait([self._ranks])
            self._ranks = None
