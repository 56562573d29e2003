"""One node of the gang: its cores, its warm process and its ranks, at the orders of the coordinator."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cpufinetune.comms.ccl.environment import worker_cpus
from cpufinetune.cores import describe, thread_environment
from cpufinetune.errors import AttemptError
from cpufinetune.launch.cause import PREPARING, Cause, of_error, of_exit, root
from cpufinetune.launch.ranks import RankProcess
from cpufinetune.launch.spare import WarmProcess
from cpufinetune.launch.stall import StallClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.cores import Layout, RankLayout
    from cpufinetune.job.document import Job
    from cpufinetune.report.events import Event
    from cpufinetune.train.settings import RankSettings

STALL_CHECK_SECONDS = 1.0


@dataclass(slots=True)
class Node:
    """The ranks of one node. `template` holds what all its ranks share; `say` takes output, `tell` event lines."""

    job: Job
    index: int
    nodes: int
    layout: Layout
    template: RankSettings
    tell: Callable[[bytes], None]
    say: Callable[[int, str], None]
    _warm: WarmProcess | None = None
    _running: dict[int, RankProcess] = field(default_factory=dict)
    _clocks: dict[int, StallClock] = field(default_factory=dict)
    _killed: bool = False
    _draining: bool = False

    def introduce(self) -> dict[str, Any]:
        """Return what the coordinator is told first; `facts` are the values of the job's status."""
        layout = self.layout
        computing = {cpu for rank in layout.ranks for cpu in rank.cpus}
        facts = {
            "threads": layout.ranks[0].threads,
            "cores": len(computing.union(*(rank.communication_cpus for rank in layout.ranks))),
            "isa": sorted(layout.isa.features),
            "pinned": layout.pinned,
        }
        introduction = {"node": self.index, "ranks": len(layout.ranks), "layout": describe(layout)}
        return {**introduction, "notes": layout.notes, "facts": facts}

    def warm_up(self) -> None:
        """Start importing; nothing waits for it yet."""
        self._warm = WarmProcess.start(thread_environment(self.layout.ranks[0]))

    async def prepare(self) -> Cause | None:
        """Read, check and tokenise the data of this node; return why it cannot be, if so."""
        settings = replace(
            self.template,
            role="prepare",
            rank=PREPARING,
            threads=self.layout.ranks[0].threads,
            world_size=self.nodes * len(self.layout.ranks),
        )
        try:
            warm = await self._warmed()
            cause = await self._watch([settings])
        except AttemptError as error:
            return of_error(self.index, error, now=time.time())
        if cause is None:
            await warm.preload(self.template.scratch, adapters=self.job.spec.training.lora is not None)
        return cause

    async def run(self, attempt: int, master_address: str, master_port: int) -> Cause | None:
        """Run this node's ranks of one attempt to their end; return why they failed, if they did."""
        local = len(self.layout.ranks)
        settings = [
            replace(
                self.template,
                role="train",
                attempt=attempt,
                rank=self.index * local + number,
                local_rank=number,
                local_world_size=local,
                world_size=self.nodes * local,
                master_address=master_address,
                master_port=master_port,
                cpus=layout.cpus,
                threads=layout.threads,
                workers=worker_cpus(self.layout),
                insist=self.job.spec.node.backend == "CCL",
            )
            for number, layout in enumerate(self.layout.ranks)
        ]
        try:
            return await self._watch(settings)
        except AttemptError as error:
            return of_error(self.index, error, now=time.time())

    def begin(self) -> None:
        """Forget the orders of the last attempt; called when the next one is ordered, before anything else is."""
        self._killed = self._draining = False

    def kill(self) -> None:
        """End all ranks now."""
        self._killed = True
        for process in self._running.values():
            process.send(signal.SIGKILL)

    def drain(self) -> None:
        """Ask all ranks to write a checkpoint and end."""
        self._draining = True
        for process in self._running.values():
            process.send(signal.SIGTERM)

    def close(self) -> None:
        """End everything."""
        self.kill()
        if self._warm is not None:
            self._warm.close()

    def pids(self) -> list[int]:
        """Return the processes that this node itself waits for."""
        return [process.pid for process in self._running.values()]

    async def _warmed(self) -> WarmProcess:
        if self._warm is not None and not self._warm.alive():
            self._warm.close()
            self._warm = None
        if self._warm is None:
            self.warm_up()
        warm = self._warm
        if warm is None:
            raise AttemptError("WarmProcessDied", "the warm process could not be started")
        if not warm.import_seconds:
            await warm.ready()
        return warm

    async def _watch(self, settings: list[RankSettings]) -> Cause | None:
        """Start ranks and wait until all of them are gone; the first failure takes the others along."""
        warm = await self._warmed()
        causes: list[Cause] = []
        try:
            for one, layout in zip(settings, self.layout.ranks, strict=False):
                await self._fork(warm, one, layout)
        except Exception as error:  # noqa: BLE001 - ranks that did start must not be left alone
            causes.append(of_error(self.index, error, now=time.time()))
            self.kill()
        watchdog = asyncio.create_task(self._watch_silence(causes))
        try:
            await asyncio.gather(*(self._wait(process, causes) for process in list(self._running.values())))
        finally:
            watchdog.cancel()
        if causes or not self._killed:
            return root(causes) if causes else None
        return Cause(
            kind="Stopped",
            node=self.index,
            time=time.time(),
            reason="Stopped",
            message="ended with the ranks of others",
        )

    async def _fork(self, warm: WarmProcess, settings: RankSettings, layout: RankLayout) -> None:
        self._clocks[settings.rank] = StallClock(self.job.spec.run_policy.stall_seconds, time.monotonic())
        shared = [cpu for rank in self.layout.ranks for cpu in rank.cpus]
        cpus = (*layout.cpus, *layout.communication_cpus) if self.layout.pinned else sorted(set(shared))
        process = await RankProcess.fork(warm, settings, cpus, self._heard, self.say)
        self._running[settings.rank] = process
        # Orders that came while it was being forked.
        if self._killed:
            process.send(signal.SIGKILL)
        elif self._draining:
            process.send(signal.SIGTERM)

    async def _wait(self, process: RankProcess, causes: list[Cause]) -> None:
        status = await process.wait()
        del self._running[process.rank]
        if status == 0 or (status == -signal.SIGKILL and self._killed):
            return
        causes.append(of_exit(self.index, process.rank, status, process.failure, now=time.time()))
        # Ranks that were asked to stop end one by one; others are of no use without their peer.
        if causes[-1].kind != "Interrupted":
            self.kill()

    def _heard(self, event: Event, line: bytes) -> None:
        clock = self._clocks.get(event.rank)
        if clock is not None:
            clock.hear(event, time.monotonic())
        self.tell(line)

    async def _watch_silence(self, causes: list[Cause]) -> None:
        while True:
            await asyncio.sleep(STALL_CHECK_SECONDS)
            now = time.monotonic()
            silent = [rank for rank in self._running if self._clocks[rank].stalled(now)]
            if silent and not self._killed:
                clock = self._clocks[silent[0]]
                causes.append(
                    Cause(
                        kind="Stall",
                        node=self.index,
                        rank=silent[0],
                        time=time.time(),
                        reason="Stalled",
                        message=f"no sign of life for {now - clock.last:.0f} s, {clock.allowed():.0f} s are allowed",
                        fix="see the rank's output; spec.runPolicy.stallSeconds sets the limit",
                    )
                )
                self.kill()
