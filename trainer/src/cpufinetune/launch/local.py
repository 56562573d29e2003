"""Simulated nodes on one machine: the launcher of a pod, once a node, with loopback addresses in the place of DNS.

This process is node 0 and coordinates; the others are processes of their own, started again if they die, as the
kubelet would. Run as a module it is one of those.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune import cores
from cpufinetune.errors import AttemptError, CpuFineTuneError, ExitCode, JobError
from cpufinetune.job.load import load
from cpufinetune.launch.assembly import Place, make_member, name_process, plan_place
from cpufinetune.launch.cause import Cause, of_error
from cpufinetune.launch.coordinator import Coordinator
from cpufinetune.launch.gang import AttemptRecord, Finish, Gang
from cpufinetune.launch.link import Link
from cpufinetune.launch.wire import COORDINATOR_PORT
from cpufinetune.train.settings import RankSettings
from cpufinetune.world.identity import identify
from cpufinetune.world.peers import LoopbackResolver, budget, host_names, wait_for_names

if TYPE_CHECKING:
    from cpufinetune.job.document import Job
    from cpufinetune.launch.member import Member
    from cpufinetune.launch.recorder import Recorder

PATTERN = "{set}-{node}"
RESPAWN_SECONDS = 1.0
QUICK_SECONDS, QUICK_FAILURES = 10.0, 5
GOODBYE_SECONDS = 10.0
PR_SET_PDEATHSIG = 1
TRIES = 100


@dataclass(frozen=True, slots=True)
class LocalNode:
    """What one simulated node is told: its pod name, the address of node 0, what all its ranks share, and a token.

    Other users of the machine reach loopback addresses too; the token keeps them out.
    """

    pod_name: str
    first_address: str
    template: RankSettings
    token: str

    def encode(self) -> str:
        """Return JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> LocalNode:
        """Read what `encode` wrote."""
        values = json.loads(text)
        template = RankSettings.decode(json.dumps(values["template"]))
        return cls(values["pod_name"], values["first_address"], template, values["token"])


def place_of(job: Job, node: int) -> Place:
    """Lay the ranks of one simulated node out on its share of this machine.

    Raises:
        JobError: the machine cannot hold them.
    """
    try:
        share = cores.split(cores.read(), job.spec.nodes)[node]
    except cores.LayoutError as error:
        raise JobError("NoLayout", str(error), "change spec.nodes or spec.node.ranks") from error
    return plan_place(job, node, share)


def _member(spec: LocalNode) -> tuple[Member, LoopbackResolver]:
    job = load(Path(spec.template.job_file), rules=False)
    identity = identify(spec.pod_name)
    resolver = LoopbackResolver(host_names(PATTERN, identity.set_name, job.spec.nodes), spec.first_address)

    async def locate() -> str:
        return resolver.resolve(resolver.hosts[0])

    link = Link(locate, budget(job.spec.nodes), lambda _: None)
    place = place_of(job, identity.node)
    return make_member(job, place, spec.template, link, interface="lo", token=spec.token), resolver


async def _run_member(spec: LocalNode) -> ExitCode:
    member, resolver = _member(spec)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, member.interrupt)
    await wait_for_names(resolver.hosts, resolver, budget(len(resolver.hosts)), lambda _: None)
    return await member.run()


async def run(
    job: Job, template: RankSettings, recorder: Recorder, last_attempt: int = 0
) -> tuple[Finish, list[AttemptRecord]]:
    """Run the whole job on this machine; return how it ended, and how each attempt did.

    `last_attempt` is the one that an earlier run, which this one resumes, ended with.
    """
    first, token = _free_loopback(job.spec.nodes), secrets.token_hex()
    names = [PATTERN.format(set=job.name, node=node) for node in range(job.spec.nodes)]
    specs = [LocalNode(name, first, template, token) for name in names]
    gang = Gang(job.spec.nodes, job.spec.run_policy.backoff_limit, attempt=last_attempt)
    deadline = job.spec.run_policy.active_deadline_seconds
    coordinator = Coordinator(
        gang,
        recorder,
        first,
        ranks=len(place_of(job, 0).layout.ranks),
        deadline_seconds=None if deadline is None else float(deadline),
        token=token,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, coordinator.interrupt)
    serving = asyncio.create_task(coordinator.run())
    shown = asyncio.create_task(recorder.show())
    nodes = [asyncio.create_task(_first(specs[0], coordinator))]
    nodes += [asyncio.create_task(_keep(spec, coordinator)) for spec in specs[1:]]
    try:
        finish = await serving
        # A node that missed the end, starting anew just then, is not waited for.
        await asyncio.wait(nodes, timeout=GOODBYE_SECONDS)
    finally:
        for task in (shown, *nodes):
            task.cancel()
        await asyncio.gather(shown, *nodes, return_exceptions=True)
    return finish, gang.records


async def _first(spec: LocalNode, coordinator: Coordinator) -> None:
    """Run node 0 in this process."""
    try:
        await _member(spec)[0].run()
    except Exception as error:  # noqa: BLE001 - without node 0 there is nothing to wait for
        coordinator.fail(of_error(0, error, now=time.time()))


async def _keep(spec: LocalNode, coordinator: Coordinator) -> None:
    """Start a node's launcher, and start it again if it ends without having been told to."""
    quick = 0
    while True:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "cpufinetune.launch.local"),
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            # Arguments would show the token to all users.
            await process.communicate(spec.encode().encode())
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        if process.returncode == 0:
            return
        quick = quick + 1 if time.monotonic() - started < QUICK_SECONDS else 0
        if quick == QUICK_FAILURES:
            node = identify(spec.pod_name).node
            message = f"its launcher ended {quick} times in a row with {process.returncode}"
            coordinator.fail(Cause(kind="Exit", node=node, time=time.time(), reason="LauncherFails", message=message))
            return
        await asyncio.sleep(RESPAWN_SECONDS)


def _free_loopback(nodes: int) -> str:
    """Return the first of `nodes` consecutive loopback addresses that no other run on this machine uses."""
    for _ in range(TRIES):
        first = f"127.{random.randint(64, 191)}.{random.randint(0, 255)}.1"  # noqa: S311 - only to avoid others
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((first, COORDINATOR_PORT))
            return first
    raise AttemptError("NoAddress", f"no free loopback address for {nodes} nodes")


def _main(text: str) -> int:
    """Be one node; return 0 only if the coordinator said that it is over."""
    # The first node dies with its terminal; this one must not outlive it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    node = LocalNode.decode(text)
    name_process(f"node-{identify(node.pod_name).node}")
    try:
        asyncio.run(_run_member(node))
    except CpuFineTuneError as error:
        print(f"node launcher: {error}", file=sys.stderr)  # noqa: T201 - its only voice
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.stdin.read()))
