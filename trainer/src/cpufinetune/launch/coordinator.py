"""Node 0's coordinator: listens to all nodes, lets the gang decide, and carries out what it decides."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import ExitCode
from cpufinetune.launch import wire
from cpufinetune.launch.cause import Cause
from cpufinetune.launch.gang import Action, Drain, Finish, Gang, Prepare, Start, State, Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.launch.recorder import Recorder


@dataclass(slots=True)
class Coordinator:
    """The server side of the gang at `address`; `run` returns how it ended.

    Attributes:
        ranks: How many each node must have.
        furthest: The last step that earlier runs reached.
        patience: Seconds to wait for nodes that are still to come once the job has failed, so that they hear of it.
        conclude: Called before any node is told to finish: none must take for over what node 0 might do again.
    """

    gang: Gang
    recorder: Recorder
    address: str
    ranks: int = 1
    deadline_seconds: float | None = None
    token: str = ""
    port: int = wire.COORDINATOR_PORT
    furthest: int = 0
    patience: float = 0.0
    conclude: Callable[[Finish], None] | None = None
    _nodes: dict[int, asyncio.StreamWriter] = field(default_factory=dict)
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)
    _finished: asyncio.Future[Finish] = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _called_off: asyncio.Event = field(default_factory=asyncio.Event)
    _interrupted_by: set[int] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)
    _all_seen: asyncio.Event = field(default_factory=asyncio.Event)
    _recorded: int = field(init=False)

    def __post_init__(self) -> None:
        self._recorded = len(self.gang.records)

    async def run(self) -> Finish:
        """Serve until the gang is finished and every node has been told."""
        self._finished = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(self._serve, self.address, self.port, limit=wire.LONGEST_MESSAGE)
        if self.deadline_seconds is not None:
            asyncio.get_running_loop().call_later(self.deadline_seconds, self._out_of_time)
        async with server:
            finish = await self._finished
            if finish.code not in {ExitCode.OK, ExitCode.INTERRUPTED}:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._all_seen.wait(), self.patience)
            for writer in list(self._connections):
                with contextlib.suppress(OSError):
                    await writer.drain()
                writer.close()
        return finish

    def fail(self, cause: Cause) -> None:
        """End the job because a node cannot take part at all."""
        self._act(self.gang.unfit(replace(cause, kind="Permanent")))

    def interrupt(self, node: int = 0) -> None:
        """Stop after a checkpoint; asked by the same node again, stop at once.

        All pods of a job that is suspended are asked to stop, and all pass it on.
        """
        if not self._interrupted_by or node in self._interrupted_by:
            self._act(self.gang.interrupt())
        self._interrupted_by.add(node)

    def missing(self) -> list[int]:
        """Return the nodes that are not connected."""
        return [node for node in range(self.gang.nodes) if node not in self._nodes]

    def _out_of_time(self) -> None:
        message = f"runPolicy.activeDeadlineSeconds ({self.deadline_seconds:.0f} s) ran out"
        self._act(
            self.gang.deadline(Cause(kind="Exit", node=0, time=time.time(), reason="DeadlineExceeded", message=message))
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            node = self._admit(await wire.receive(reader), writer)
            while node is not None and (message := await wire.receive(reader)) is not None:
                self._take(node, message)
        finally:
            self._connections.discard(writer)
            writer.close()
            for node in [node for node, other in self._nodes.items() if other is writer]:
                self._lose(node)

    def _admit(self, hello: dict[str, Any] | None, writer: asyncio.StreamWriter) -> int | None:
        if hello is None or hello["kind"] != "hello" or not hmac.compare_digest(str(hello.get("token")), self.token):
            return None
        node, ranks = hello.get("node"), hello.get("ranks")
        if not isinstance(node, int) or not 0 <= node < self.gang.nodes:
            return None
        if node in self._nodes:
            # A newcomer under a known name: the old one is gone, whatever its connection says.
            self._lose(node)
        self._nodes[node] = writer
        wire.watch(writer)
        self.recorder.joined(node, hello["layout"], hello["notes"], hello.get("facts"))
        if self._finished.done():
            wire.send(writer, "finish", code=int(self._finished.result().code))
        elif ranks not in {None, self.ranks}:
            message = f"it has room for {ranks} ranks, node 0 for {self.ranks}; all nodes need the same number"
            cause = Cause(kind="Exit", node=node, time=time.time(), reason="UnevenNodes", message=message)
            self.fail(replace(cause, fix="set spec.node.ranks"))
        self._seen.add(node)
        if len(self._seen) == self.gang.nodes:
            self._all_seen.set()
        return node

    def _lose(self, node: int) -> None:
        self._nodes.pop(node).close()
        message = "its launcher is gone"
        if self.gang.state != State.FINISHED:
            self.recorder.note(f"node {node}: {message}")
        self._act(
            self.gang.lost(
                node, Cause(kind="NodeLost", node=node, time=time.time(), reason="NodeLost", message=message)
            )
        )

    def _take(self, node: int, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "event":
                step = self.recorder.heard(message["line"])
                if step is not None and step > self.furthest:
                    self.furthest = step
                    self.gang.progressed()
            case "output":
                self.recorder.said(message["rank"], message["text"])
            case "ready":
                self._act(self.gang.ready(node))
            case "unfit":
                self._act(self.gang.unfit(Cause.read(message["cause"])))
            case "done":
                self._act(self.gang.done(node))
            case "ended":
                cause = Cause.read(message["cause"])
                self._act(self.gang.ended(node, cause))
            case "interrupt":
                self.interrupt(node)

    def _act(self, actions: list[Action]) -> None:
        for record in self.gang.records[self._recorded :]:
            self.recorder.ended(record, self.gang.failures)
        self._recorded = len(self.gang.records)
        for action in actions:
            match action:
                case Start():
                    self._later(self._start(action))
                case Prepare(node):
                    self.recorder.note(f"node {node} prepares again: {self.gang.records[-1].causes[-1]}")
                    if node in self._nodes:
                        wire.send(self._nodes[node], "prepare")
                case Stop():
                    self._tell("stop")
                case Drain():
                    self.recorder.note("stopping after a checkpoint")
                    self._tell("drain")
                case Finish():
                    self._finish(action)

    def _finish(self, finish: Finish) -> None:
        if self.conclude is not None and not self._finished.done():
            self.conclude(finish)
        self._tell("finish", code=int(finish.code))
        if not self._finished.done():
            self._finished.set_result(finish)

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, start: Start) -> None:
        if self.gang.records and self.gang.records[-1].causes:
            self.recorder.restarting(start.attempt, self.gang.records[-1])
        if start.delay:
            self.recorder.note(f"waiting {start.delay:.0f} s before attempt {start.attempt}")
            self._called_off.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._called_off.wait(), start.delay)
        if self.gang.state != State.RUNNING:
            # Called off while waiting: no node has ranks that could end.
            cause = Cause(kind="Stopped", node=0, time=time.time(), reason="Stopped", message="ended before it began")
            for node in list(self._nodes):
                self._act(self.gang.ended(node, cause))
            return
        self._tell("start", attempt=start.attempt, address=self.address, port=free_port(self.address))

    def _tell(self, kind: str, **fields: Any) -> None:
        if kind in {"stop", "drain", "finish"}:
            self._called_off.set()
        for writer in self._nodes.values():
            wire.send(writer, kind, **fields)


def free_port(address: str) -> int:
    """Return a port that nobody uses at `address`: each attempt gets a new one, so none waits for an old socket."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
