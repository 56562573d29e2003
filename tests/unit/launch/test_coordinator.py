"""The coordinator with members that are real connections, and crews that do as the test says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.errors import ExitCode
from cpufinetune.launch.cause import Cause
from cpufinetune.launch.coordinator import Coordinator, free_port
from cpufinetune.launch.crew import UnfitCrew
from cpufinetune.launch.gang import AttemptRecord, Finish, Gang
from cpufinetune.launch.link import Link
from cpufinetune.launch.member import Member

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = "127.0.0.1"
TOKEN = "uid"  # noqa: S105 - of a test


@dataclass
class Crew:
    """A node whose ranks run until they are told to end; `prepared` says when it is ready."""

    index: int
    prepared: asyncio.Event = field(default_factory=asyncio.Event)
    calls: list[str] = field(default_factory=list)
    ranks: int = 1
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _why: str = ""

    def introduce(self) -> dict[str, Any]:
        return {"node": self.index, "ranks": self.ranks, "layout": [], "notes": []}

    async def prepare(self) -> Cause | None:
        await self.prepared.wait()
        return None

    async def run(self, attempt: int, master_address: str, master_port: int) -> Cause | None:
        del master_address, master_port
        self.calls.append(f"run {attempt}")
        self._over.clear()
        await self._over.wait()
        kind: Any = self._why
        return Cause(kind=kind, node=self.index, time=1.0, reason=kind, message="") if kind else None

    def end(self, why: str = "") -> None:
        self._why = why
        self._over.set()

    def kill(self) -> None:
        self.end("Stopped")

    def drain(self) -> None:
        self.calls.append("drain")

    def pids(self) -> list[int]:
        return []

    def warm_up(self) -> None:
        """Nothing."""

    def begin(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


@dataclass
class Notes:
    """A recorder that only remembers."""

    lines: list[str] = field(default_factory=list)
    records: list[tuple[AttemptRecord, int]] = field(default_factory=list)

    def joined(self, node: int, *_: Any) -> None:
        self.lines.append(f"joined {node}")

    def note(self, text: str) -> None:
        self.lines.append(text)

    def restarting(self, attempt: int, last: AttemptRecord) -> None:
        del last
        self.lines.append(f"restarting {attempt}")

    def ended(self, record: AttemptRecord, failures: int) -> None:
        self.records.append((record, failures))


@dataclass
class Scene:
    """A coordinator at a port of its own, and two crews with their members."""

    coordinator: Coordinator
    notes: Notes
    crews: list[Crew]
    members: list[Member]
    serving: asyncio.Task[Finish]

    def join(self, node: int) -> asyncio.Task[ExitCode]:
        return asyncio.create_task(self.members[node].run())

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.005)

    async def ran(self, attempt: int) -> None:
        await self.until(lambda: all(f"run {attempt}" in crew.calls for crew in self.crews))


def play(act: Callable[[Scene], Any], *, ready: bool = True, **options: Any) -> Any:
    """Run `act` with everything set up."""

    async def scene() -> Any:
        notes: Any = Notes()
        port = free_port(HERE)

        async def locate() -> str:
            return HERE

        gang = options.pop("gang", None) or Gang(2, 1)
        coordinator = Coordinator(gang, notes, HERE, token=TOKEN, port=port, **options)
        crews = [Crew(node) for node in (0, 1)]
        for crew in crews if ready else []:
            crew.prepared.set()
        members = [Member(crew, Link(locate, 20.0, lambda _: None, port), TOKEN) for crew in crews]
        serving = asyncio.create_task(coordinator.run())
        async with asyncio.timeout(30):
            return await act(Scene(coordinator, notes, crews, members, serving))

    return asyncio.run(scene())


def test_all_nodes_hear_of_the_end_once_it_is_concluded() -> None:
    concluded: list[ExitCode] = []

    async def act(scene: Scene) -> None:
        nodes = [scene.join(0), scene.join(1)]
        await scene.ran(1)
        assert not concluded
        for crew in scene.crews:
            crew.end()
        assert [await node for node in nodes] == [ExitCode.OK, ExitCode.OK]
        assert concluded == [ExitCode.OK]
        assert (await scene.serving).code == ExitCode.OK

    play(act, conclude=lambda finish: concluded.append(finish.code))


def test_a_job_that_is_suspended_is_drained_though_every_pod_passes_it_on() -> None:
    async def act(scene: Scene) -> list[str]:
        nodes = [scene.join(0), scene.join(1)]
        await scene.ran(1)
        scene.coordinator.interrupt()
        scene.members[1].interrupt()
        await scene.until(lambda: all("drain" in crew.calls for crew in scene.crews))
        await asyncio.sleep(0.05)
        assert not scene.serving.done(), "ranks are still at their checkpoint"
        for crew in scene.crews:
            crew.end("Interrupted")
        assert [await node for node in nodes] == [ExitCode.INTERRUPTED] * 2
        return scene.crews[1].calls

    assert play(act) == ["run 1", "drain"]


def test_a_node_that_asks_again_does_not_want_to_wait() -> None:
    async def act(scene: Scene) -> None:
        nodes = [scene.join(0), scene.join(1)]
        await scene.ran(1)
        scene.members[1].interrupt()
        scene.members[1].interrupt()
        assert [await node for node in nodes] == [ExitCode.INTERRUPTED] * 2

    play(act)


@pytest.mark.parametrize("patience", [0.0, 20.0])
def test_a_node_that_comes_late_to_a_failed_job_is_waited_for(patience: float) -> None:
    async def act(scene: Scene) -> tuple[ExitCode, bool]:
        cause = Cause(kind="Permanent", node=0, time=0.0, reason="MissingColumn", message="no column")
        first = asyncio.create_task(Member(UnfitCrew(cause), scene.members[0].link, TOKEN).run())
        assert await first == ExitCode.BAD_INPUT
        await asyncio.wait({scene.serving}, timeout=0.05 if patience else 20)
        there = not scene.serving.done()
        if there:
            assert await scene.join(1) == ExitCode.BAD_INPUT
        finish = await scene.serving
        assert finish.cause == cause
        return finish.code, there

    assert play(act, patience=patience) == (ExitCode.BAD_INPUT, patience > 0)


def test_how_attempts_end_is_told_with_how_many_count() -> None:
    async def act(scene: Scene) -> list[tuple[int, list[str], int]]:
        nodes = [scene.join(0), scene.join(1)]
        for attempt in (6, 7):
            await scene.ran(attempt)
            scene.crews[1].end("Signal")
        assert [await node for node in nodes] == [ExitCode.GAVE_UP] * 2
        return [(one.attempt, [cause.kind for cause in one.causes], count) for one, count in scene.notes.records]

    past = [AttemptRecord(5, (Cause(kind="Signal", node=0, time=0.0, reason="Killed", message=""),))]
    told = play(act, gang=Gang(2, 4, attempt=5, failures=3, records=past))
    assert told == [(6, ["Signal", "Stopped"], 4), (7, ["Signal", "Stopped"], 5)]


def test_a_node_that_dies_over_its_preparation_uses_up_the_retries() -> None:
    async def act(scene: Scene) -> Finish:
        for _ in range(2):
            dying = scene.join(1)
            await scene.until(lambda: 1 not in scene.coordinator.missing())
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)
            await scene.until(lambda: 1 in scene.coordinator.missing())
        return await scene.serving

    finish = play(act, ready=False)
    assert finish.code == ExitCode.GAVE_UP
    assert finish.cause.reason == "NodeLost"


def test_a_pod_of_another_job_of_this_name_is_not_let_in() -> None:
    async def act(scene: Scene) -> list[str]:
        stranger = asyncio.create_task(Member(scene.crews[1], scene.members[1].link, "other").run())
        await asyncio.sleep(0.2)
        stranger.cancel()
        await asyncio.gather(stranger, return_exceptions=True)
        scene.coordinator.interrupt()
        await scene.serving
        return scene.notes.lines

    assert play(act) == []


def test_a_node_with_another_number_of_ranks_ends_the_job() -> None:
    async def act(scene: Scene) -> Finish:
        scene.crews[1].ranks = 2
        nodes = [scene.join(0), scene.join(1)]
        assert [await node for node in nodes] == [ExitCode.BAD_INPUT] * 2
        return await scene.serving

    finish = play(act)
    assert (finish.cause.node, finish.cause.reason) == (1, "UnevenNodes")
