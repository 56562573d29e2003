"""What simulated nodes and pods are put together from."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from cpufinetune import cores
from cpufinetune.comms.ccl import environment, locate
from cpufinetune.errors import JobError
from cpufinetune.job.parse import to_document
from cpufinetune.launch.member import Member
from cpufinetune.launch.node import Node
from cpufinetune.train.settings import RankSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cpufinetune.job.document import Job
    from cpufinetune.launch.link import Link

PACKAGES = ("cpufinetune", "torch", "transformers", "datasets", "tokenizers", "safetensors", "numpy", "peft")
PR_SET_NAME = 15


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a job: its number, its share of a machine, and where the ranks go on that."""

    index: int
    share: cores.Description
    layout: cores.Layout


def plan_place(job: Job, index: int, share: cores.Description) -> Place:
    """Lay the ranks of a node out on its share of a machine.

    Raises:
        JobError: it cannot hold them.
    """
    wanted = job.spec.node.cpu
    if wanted is not None and wanted < len(share.cores):
        share = replace(share, quota=float(wanted) if share.quota is None else min(share.quota, wanted))
    try:
        layout = cores.plan_layout(share, ranks=job.spec.node.ranks)
        if (free := _communication_cores(job, layout)) > 0:
            layout = cores.plan_layout(share, ranks=job.spec.node.ranks, communication_cores=free)
    except cores.LayoutError as error:
        raise JobError("NoLayout", str(error), "change spec.nodes or spec.node.ranks") from error
    if wanted is not None and wanted > len(share.cores):
        note = f"spec.node.cpu asks for {wanted} CPUs, this machine has {len(share.cores)} for each node"
        layout = replace(layout, notes=(*layout.notes, note))
    return Place(index, share, layout)


def _communication_cores(job: Job, layout: cores.Layout) -> int:
    """Return the cores a rank that oneCCL's worker should have, where oneCCL is likely to be used."""
    if job.spec.node.backend == "Gloo" or not layout.pinned:
        return 0
    try:
        locate.find()
    except locate.CclError:
        return 0
    return environment.communication_cores(nodes=job.spec.nodes, cores=layout.ranks[0].threads)


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


def make_template(
    job: Job, *, model_root: Path | None, data_root: Path | None, scratch: Path, output: Path
) -> RankSettings:
    """Write the effective document for the ranks and return what they all share.

    Raises:
        OSError: `scratch` cannot be written.
    """
    file = scratch / "job.json"
    scratch.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(to_document(job), indent=2), encoding="utf-8")
    return RankSettings(
        role="",
        job_file=str(file),
        model_root=None if model_root is None else str(model_root),
        data_root=None if data_root is None else str(data_root),
        scratch=str(scratch),
        output=str(output),
    )


def make_member(
    job: Job,
    place: Place,
    template: RankSettings,
    link: Link,
    *,
    interface: str,
    token: str,
    hear: Callable[[int, str], None] | None = None,
) -> Member:
    """Return the member that obeys for a node; `hear` gets its ranks' output, besides the coordinator."""
    layout, limit = place.layout, place.share.memory_limit
    settings = replace(
        template,
        native_bf16=layout.isa.native_bf16,
        memory_limit=None if limit is None else limit // len(layout.ranks),
        interface=interface,
    )

    def say(rank: int, text: str) -> None:
        member.say(rank, text)
        if hear is not None:
            hear(rank, text)

    node = Node(
        job=job,
        index=place.index,
        nodes=job.spec.nodes,
        layout=layout,
        template=settings,
        tell=lambda line: member.tell(line),  # noqa: PLW0108 - member is made below
        say=say,
    )
    member = Member(node, link, token)
    return member


def name_process(name: str) -> None:
    """Set what ps and top show."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"cft-{name}".encode())


def machine(description: cores.Description) -> dict[str, Any]:
    """Return what report and plan say of this machine."""
    return {
        "cpu": description.model_name,
        "cores": len(description.cores),
        "quota": description.quota,
        "isa": str(description.isa),
        "memoryBytes": description.memory_limit,
        "kernel": os.uname().release,
    }


def versions() -> dict[str, str]:
    """Return the versions of what shapes the result."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
