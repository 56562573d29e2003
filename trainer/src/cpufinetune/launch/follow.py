"""Every other node of a job of pods: it finds node 0 and obeys."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from cpufinetune import cores
from cpufinetune.errors import ExitCode, JobError
from cpufinetune.launch.assembly import make_member, plan_place
from cpufinetune.launch.cause import of_error
from cpufinetune.launch.crew import UnfitCrew
from cpufinetune.launch.link import Link
from cpufinetune.launch.member import Member
from cpufinetune.launch.park import ENDING, reap
from cpufinetune.report.text import rank_line
from cpufinetune.world.interface import interface_of
from cpufinetune.world.peers import DnsResolver, budget, own_address, wait_for_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.launch.pod import Pod


def follow(pod: Pod, say: Callable[[str], None]) -> ExitCode:
    """Be a node other than 0 until the job is over; return the code that node 0 gave.

    Raises:
        AttemptError: node 0 cannot be found; another life of this container may do better.
    """
    return asyncio.run(_Follower(pod, say).run())


class _Follower:
    def __init__(self, pod: Pod, say: Callable[[str], None]) -> None:
        self._pod = pod
        self._say = say
        self._hush = pod.hush(say)
        self._resolver = DnsResolver()
        self._seconds = budget(len(pod.hosts))
        self._member: Member | None = None
        self._gathered = False

    async def run(self) -> ExitCode:
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        for number in ENDING:
            loop.add_signal_handler(number, self._interrupt, main)
        self._say(f"node {self._pod.identity.node} of {len(self._pod.hosts)}: node 0 logs the progress of all")
        reaper = asyncio.create_task(reap(self._pids))
        try:
            self._member = await self._make_member()
            return await self._member.run()
        except asyncio.CancelledError:
            return ExitCode.INTERRUPTED
        finally:
            reaper.cancel()

    def _pids(self) -> list[int]:
        return [] if self._member is None else self._member.crew.pids()

    def _interrupt(self, main: asyncio.Task[Any] | None) -> None:
        if self._member is not None and self._member.connected:
            self._member.interrupt()
        elif main is not None:
            # There is nobody who could see to a checkpoint.
            main.cancel()

    async def _make_member(self) -> Member:
        pod = self._pod
        link = Link(self._locate, self._seconds, self._hush, pod.places.port)
        try:
            place = plan_place(pod.job, pod.identity.node, cores.read())
            template = pod.template(pod.places.scratch / "output")
        except JobError as error:
            # Only node 0's word counts: it must hear of this one's.
            self._say(f"error: {error}")
            return Member(UnfitCrew(of_error(pod.identity.node, error, now=time.time())), link, pod.uid)
        own = pod.hosts[pod.identity.node]
        _, interface = await own_address(own, self._resolver, interface_of, self._seconds, self._hush)
        return make_member(pod.job, place, template, link, interface=interface, token=pod.uid, hear=self._hear)

    def _hear(self, rank: int, text: str) -> None:
        self._say(rank_line(rank, text))

    async def _locate(self) -> str:
        """Wait for all names the first time; later only node 0's address may have changed."""
        if not self._gathered:
            await wait_for_names(self._pod.hosts, self._resolver, self._seconds, self._hush)
            self._gathered = True
        return await asyncio.to_thread(self._resolver.resolve, self._pod.hosts[0])
