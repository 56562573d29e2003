"""Node 0 of a job of pods: coordinator, recorder and report server, and beside them a member like all others."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune import cores
from cpufinetune.errors import AttemptError, ExitCode
from cpufinetune.job.parse import to_document
from cpufinetune.launch import assembly
from cpufinetune.launch.cause import of_error, root
from cpufinetune.launch.coordinator import Coordinator
from cpufinetune.launch.gang import Finish, Gang
from cpufinetune.launch.journal import Journal
from cpufinetune.launch.link import Link
from cpufinetune.launch.output import Output
from cpufinetune.launch.park import ENDING, reap
from cpufinetune.launch.recorder import Recorder, open_events
from cpufinetune.launch.standing import Standing
from cpufinetune.launch.termination import Ending, fit, publish, write_marker
from cpufinetune.report.progress import Progress
from cpufinetune.report.server import ReportServer, listen
from cpufinetune.world.interface import interface_of
from cpufinetune.world.peers import DnsResolver, budget, own_address, wait_for_names

if TYPE_CHECKING:
    from cpufinetune.launch.pod import Pod
    from cpufinetune.report.console import Console
    from cpufinetune.train.settings import RankSettings

# Seconds between looks for nodes that are missing, and between lines on the same ones.
MISSING_SECONDS, REMINDER_SECONDS = 10.0, 60.0
GOODBYE_SECONDS = 10.0
# Seconds that a job which failed waits for pods that are still to come, so that all of them end alike.
PATIENCE = 10.0


def lead(pod: Pod, console: Console) -> Ending:
    """Be node 0 until the job is over.

    Raises:
        JobError: it cannot even begin.
        AttemptError: another life of this container may do better.
    """
    output = Output(pod.places.output(pod.job), pod.uid)
    last_word = output.last_word()
    if last_word is not None:
        console.note("this job is complete already")
        return Ending(ExitCode.OK, last_word)
    with output.hold(pod.job) as note, contextlib.ExitStack() as stack:
        if note:
            console.note(note)
        leader = _leader(pod, output, console)
        with contextlib.suppress(OSError):
            leader.recorder.sinks.append(stack.enter_context(open_events(output.events)))
        return leader.live()


def _leader(pod: Pod, output: Output, console: Console) -> Leader:
    description = cores.read()
    place = assembly.plan_place(pod.job, 0, description)
    ranks = len(place.layout.ranks)
    world = assembly.check_world(pod.job, ranks)
    template = pod.template(output.path)
    journal = Journal(output.journal)
    recorder = Recorder(
        progress=Progress(clock=time.time),
        console=console,
        output=output.path,
        nodes=pod.job.spec.nodes,
        title=f"{pod.job.name}: {pod.job.spec.nodes} nodes, {world} ranks, batch {pod.job.spec.training.batch_size}",
        job_document=to_document(pod.job),
        machine=assembly.machine(description),
        versions=assembly.versions(),
        journal=journal,
    )
    last_attempt = recorder.replay(output.events) if output.events.is_file() else 0
    past = journal.read(last_attempt, time.time())
    journal.begin(past)
    gang = Gang(
        pod.job.spec.nodes,
        pod.job.spec.run_policy.backoff_limit,
        attempt=max([last_attempt, *(record.attempt for record in past.records)]),
        failures=past.failures,
        records=list(past.records),
    )
    standing = Standing(
        uid=pod.uid,
        set_name=pod.identity.set_name,
        ranks=ranks,
        output_root=pod.places.output_root,
        gang=gang,
        recorder=recorder,
    )
    return Leader(pod, place, template, output, recorder, standing)


@dataclass(slots=True)
class Leader:
    """Node 0 with all that it keeps."""

    pod: Pod
    place: assembly.Place
    template: RankSettings
    output: Output
    recorder: Recorder
    standing: Standing
    _coordinator: Coordinator | None = None
    _ending: Ending | None = None

    def live(self) -> Ending:
        """Run the job to its end and say how it ended."""
        gang = self.standing.gang
        try:
            if gang.failures > gang.backoff_limit:
                finish = Finish(ExitCode.GAVE_UP, root(gang.records[-1].causes))
            else:
                finish = asyncio.run(self._run())
        except (AttemptError, OSError) as error:
            finish = Finish(ExitCode.RETRY, of_error(0, error, now=time.time()))
        # What is left to do takes a moment and must be done.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.recorder.journal is not None:
            self.recorder.journal.end(finish.code)
        if finish.code != ExitCode.RETRY:
            self._report(finish)
        if finish.code == ExitCode.OK:
            self.output.clear()
        return self._ending or Ending(finish.code, self.standing.message(finish))

    def _report(self, finish: Finish) -> None:
        try:
            self.recorder.finish(finish, self.standing.gang.records)
        except Exception as error:  # noqa: BLE001 - a plot that fails does not change how the job ended
            self._say(f"warning: the report is not complete: {type(error).__name__}: {error}")

    def _conclude(self, finish: Finish) -> None:
        """Make the end known before any node acts on it: had this one to start over, the others would be parked."""
        self._ending = ending = Ending(finish.code, self.standing.message(finish))
        warnings = publish(ending, self.pod.places.termination_message, self.pod.places.marker)
        if finish.code == ExitCode.OK:
            # For a pod that is recreated: a complete job must never be run again.
            warnings += filter(None, [write_marker(self.output.finished, fit(ending.message))])
        for warning in warnings:
            self._say(warning)

    async def _run(self) -> Finish:
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        for number in ENDING:
            loop.add_signal_handler(number, self._interrupt, main)
        helpers = [
            asyncio.create_task(work) for work in (self.recorder.show(), self._serve_report(), self._name_missing())
        ]
        try:
            return await self._work()
        except asyncio.CancelledError:
            return Finish(ExitCode.INTERRUPTED, None)
        finally:
            await _cancel(helpers)

    def _interrupt(self, main: asyncio.Task[Any] | None) -> None:
        if self._coordinator is not None:
            self._coordinator.interrupt()
        elif main is not None:
            main.cancel()

    async def _work(self) -> Finish:
        hosts, resolver, seconds = self.pod.hosts, DnsResolver(), budget(len(self.pod.hosts))
        address, interface = await own_address(hosts[0], resolver, interface_of, seconds, self.pod.hush(self._say))
        self._coordinator = self._coordinate(address)

        async def locate() -> str:
            return address

        link = Link(locate, seconds, self.pod.hush(self._say), self.pod.places.port)
        member = assembly.make_member(
            self.pod.job, self.place, self.template, link, interface=interface, token=self.pod.uid
        )
        serving = asyncio.create_task(self._coordinator.run())
        first = asyncio.create_task(member.run())
        others = [
            asyncio.create_task(wait_for_names(hosts, resolver, seconds, self.pod.hush(self._say))),
            asyncio.create_task(reap(member.crew.pids)),
        ]
        try:
            await _until(serving, {first, *others})
            await asyncio.wait({first}, timeout=GOODBYE_SECONDS)
            return serving.result()
        finally:
            await _cancel([serving, first, *others])

    def _coordinate(self, address: str) -> Coordinator:
        deadline = self.pod.job.spec.run_policy.active_deadline_seconds
        return Coordinator(
            self.standing.gang,
            self.recorder,
            address,
            ranks=len(self.place.layout.ranks),
            deadline_seconds=None if deadline is None else float(deadline),
            token=self.pod.uid,
            port=self.pod.places.port,
            furthest=int(self.recorder.progress.snapshot()["step"]),
            patience=PATIENCE,
            conclude=self._conclude,
        )

    def _say(self, text: str) -> None:
        self.recorder.note(text)

    async def _serve_report(self) -> None:
        try:
            listener = listen(self.pod.places.report_port)
        except OSError as error:
            self._say(f"warning: no report is served: {error}")
            return
        await ReportServer(self.standing.pages()).run(listener)

    async def _name_missing(self) -> None:
        said: list[int] = []
        seldom = self.pod.hush(self._say, REMINDER_SECONDS)
        while True:
            await asyncio.sleep(MISSING_SECONDS)
            missing = [] if self._coordinator is None else self._coordinator.missing()
            if missing:
                names = ", ".join(f"{self.pod.identity.set_name}-{node}" for node in missing[:5])
                say = seldom if missing == said else self._say
                say(f"waiting for {len(missing)} of {len(self.pod.hosts)} nodes to answer: {names}")
            said = missing


async def _until(wanted: asyncio.Task[Any], others: set[asyncio.Task[Any]]) -> None:
    """Wait for a task; what another one fails with is raised at once."""
    pending = {wanted, *others}
    while not wanted.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
