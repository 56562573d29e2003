"""Simulated nodes on one machine: the launcher of a pod, once a node, with loopback addresses in the place of DNS.

This process is node 0 and coordinates; the others are processes of their own, started again if they die, as the
kubelet would. Run as a module it is one of those.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpufinetune import cores
from cpufinetune.errors import AttemptError, ExitCode, JobError
from cpufinetune.job.load import load
from cpufinetune.launch.coordinator import Coordinator
from cpufinetune.launch.gang import AttemptRecord, Finish, Gang
from cpufinetune.launch.member import Member
from cpufinetune.launch.node import Node
from cpufinetune.launch.wire import COORDINATOR_PORT
from cpufinetune.train.settings import RankSettings
from cpufinetune.world.identity import identify
from cpufinetune.world.peers import LoopbackResolver, budget, host_names, wait_for_names

if TYPE_CHECKING:
    from cpufinetune.job.document import Job
    from cpufinetune.launch.recorder import Recorder

PATTERN = "{set}-{node}"
RESPAWN_SECONDS = 1.0
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
TRIES = 100


@dataclass(frozen=True, slots=True)
class LocalNode:
    """What one simulated node is told: its pod name, the address of node 0, and what all its ranks share."""

    pod_name: str
    first_address: str
    template: RankSettings

    def encode(self) -> str:
        """Return JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> LocalNode:
        """Read what `encode` wrote."""
        values = json.loads(text)
        return cls(values["pod_name"], values["first_address"], RankSettings.decode(json.dumps(values["template"])))


def layout_of(job: Job, node: int) -> tuple[cores.Layout, cores.Description]:
    """Lay the ranks of one simulated node out on its share of this machine.

    Raises:
        JobError: the machine cannot hold them.
    """
    try:
        share = cores.split(cores.read(), job.spec.nodes)[node]
        wanted = job.spec.node.cpu
        if wanted is not None and wanted < len(share.cores):
            share = replace(share, quota=float(wanted) if share.quota is None else min(share.quota, wanted))
        layout = cores.plan_layout(share, ranks=job.spec.node.ranks)
    except cores.LayoutError as error:
        raise JobError("NoLayout", str(error), "change spec.nodes or spec.node.ranks") from error
    if wanted is not None and wanted > len(share.cores):
        note = f"spec.node.cpu asks for {wanted} CPUs, this machine has {len(share.cores)} for each node"
        layout = replace(layout, notes=(*layout.notes, note))
    return layout, share


def check_world(job: Job, ranks_a_node: int) -> int:
    """Return the world size; refuse one that does not divide the global batch."""
    world, batch = job.spec.nodes * ranks_a_node, job.spec.training.batch_size
    if batch % world:
        below, above = batch - batch % world, batch - batch % world + world
        better = f"{below} or {above}" if below else f"{above}"
        raise JobError(
            "BatchNotDivisible",
            f"spec.training.batchSize {batch} cannot be shared by {world} ranks "
            f"({job.spec.nodes} nodes x {ranks_a_node})",
            f"use {better}, or another number of nodes or ranks",
        )
    return world


def _member(spec: LocalNode) -> tuple[Member, LoopbackResolver]:
    job = load(Path(spec.template.job_file), rules=False)
    identity = identify(spec.pod_name)
    layout, share = layout_of(job, identity.node)
    limit = None if share.memory_limit is None else share.memory_limit // len(layout.ranks)
    node = Node(
        job=job,
        index=identity.node,
        nodes=job.spec.nodes,
        layout=layout,
        template=replace(spec.template, native_bf16=layout.isa.native_bf16, memory_limit=limit, interface="lo"),
        tell=lambda line: member.tell(line),  # noqa: PLW0108 - member is made below
        say=lambda rank, text: member.say(rank, text),  # noqa: PLW0108
    )
    resolver = LoopbackResolver(host_names(PATTERN, identity.set_name, job.spec.nodes), spec.first_address)
    member = Member(node, resolver.resolve(resolver.hosts[0]), budget(job.spec.nodes))
    return member, resolver


async def _run_member(spec: LocalNode) -> ExitCode:
    member, resolver = _member(spec)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, member.interrupt)
    await wait_for_names(resolver.hosts, resolver, budget(len(resolver.hosts)), lambda _: None)
    return await member.run()


async def run(job: Job, template: RankSettings, recorder: Recorder) -> tuple[Finish, list[AttemptRecord]]:
    """Run the whole job on this machine; return how it ended, and how each attempt did."""
    first = _free_loopback(job.spec.nodes)
    specs = [LocalNode(PATTERN.format(set=job.name, node=node), first, template) for node in range(job.spec.nodes)]
    gang = Gang(job.spec.nodes, job.spec.run_policy.backoff_limit)
    deadline = job.spec.run_policy.active_deadline_seconds
    coordinator = Coordinator(gang, recorder, first, None if deadline is None else float(deadline))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, coordinator.interrupt)
    others = [asyncio.create_task(_keep(spec)) for spec in specs[1:]]
    shown = asyncio.create_task(recorder.show())
    serving = asyncio.create_task(coordinator.run())
    mine = asyncio.create_task(_member(specs[0])[0].run())
    try:
        finish = await serving
        with contextlib.suppress(AttemptError):
            await mine
        await asyncio.gather(*others)
    finally:
        for task in (shown, mine, *others):
            task.cancel()
        await asyncio.gather(shown, mine, *others, return_exceptions=True)
    return finish, gang.records


async def _keep(spec: LocalNode) -> None:
    """Start a node's launcher, and start it again if it dies of a signal or a bug."""
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cpufinetune.launch.local",
            spec.encode(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        if code in set(ExitCode):
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
    # The first node dies with its terminal; this one must not outlive it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    node = LocalNode.decode(text)
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"cft-node-{identify(node.pod_name).node}".encode())
    try:
        return int(asyncio.run(_run_member(node)))
    except AttemptError as error:
        print(f"node launcher: {error}", file=sys.stderr)  # noqa: T201 - its only voice
        return int(error.exit_code)


def machine() -> dict[str, Any]:
    """Return what report and plan say of this machine."""
    description = cores.read()
    return {
        "cpu": description.model_name,
        "cores": len(description.cores),
        "quota": description.quota,
        "isa": str(description.isa),
        "memoryBytes": description.memory_limit,
        "kernel": os.uname().release,
    }


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
