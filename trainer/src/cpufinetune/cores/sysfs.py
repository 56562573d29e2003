"""Reads `Description` from /sys and /proc; a missing file never fails, it only makes the picture coarser."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.cores.cgroup import read_limits, read_text
from cpufinetune.cores.cpulist import parse_cpus
from cpufinetune.cores.description import Cpu, Description, Isa

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_KIB = 1024


@dataclass(frozen=True, slots=True)
class _Processor:
    """One block of /proc/cpuinfo."""

    id: int
    flags: frozenset[str]
    model_name: str


def read(root: Path = Path("/"), allowed: Collection[int] | None = None) -> Description:
    """Describe the CPU below `root` as this process may use it.

    Args:
        root: Where /sys and /proc are found; anything but "/" is a recorded tree.
        allowed: CPU ids to choose from, cut to online CPUs and the cpuset. None means this process's affinity mask;
            in a recorded tree, whose processes are gone, all online CPUs.

    Returns:
        The description; without topology files each CPU is a core of its own on NUMA node 0.
    """
    limits = read_limits(root)
    processors = _processors(read_text(root / "proc/cpuinfo") or "")
    ids = _usable(root, allowed, limits.cpuset, [processor.id for processor in processors])
    nodes = _numa_nodes(root)
    mine = [processor for processor in processors if processor.id in ids]
    memories = [size for size in (limits.memory, _memory_total(root)) if size is not None]
    return Description(
        cpus=tuple(_cpu(root, cpu, nodes.get(cpu, 0)) for cpu in sorted(ids)),
        quota=limits.quota,
        # A process may be moved among its CPUs, so only what all of them have counts.
        isa=Isa.from_flags(frozenset.intersection(*(processor.flags for processor in mine)) if mine else ()),
        model_name=next((processor.model_name for processor in mine if processor.model_name), "unknown"),
        memory_limit=min(memories, default=None),
    )


def _usable(
    root: Path, allowed: Collection[int] | None, cpuset: frozenset[int] | None, listed: Iterable[int]
) -> frozenset[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    if allowed is None and root == Path("/") and affinity is not None:
        # The kernel keeps this mask inside the cpuset and the online CPUs: nothing to cut.
        return frozenset(affinity(0))
    online = _cpus(root / "sys/devices/system/cpu/online") or frozenset(listed)
    if not online and allowed is None:
        online = frozenset(range(os.cpu_count() or 1)) if root == Path("/") else frozenset()
    chosen = frozenset(allowed) if allowed is not None else online
    chosen = chosen & online if online else chosen
    # A cpuset that leaves nothing was read from another container's view: the mask is the authority.
    return chosen & cpuset or chosen if cpuset is not None else chosen


def _cpu(root: Path, cpu: int, node: int) -> Cpu:
    topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    # core_id repeats in every package and die, the lowest sibling does not. core_cpus_list is the newer name.
    siblings = _cpus(topology / "core_cpus_list") or _cpus(topology / "thread_siblings_list")
    package = read_text(topology / "physical_package_id") or ""
    return Cpu(
        id=cpu,
        core=min(siblings) if cpu in siblings else cpu,
        package=int(package) if package.isdecimal() else 0,
        node=node,
    )


def _numa_nodes(root: Path) -> dict[int, int]:
    """NUMA node by CPU id; nodes of memory alone list no CPU and so do not appear."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    numbers = sorted(int(folder.name[4:]) for folder in folders if folder.name[4:].isdecimal())
    cpulists = {number: _cpus(root / f"sys/devices/system/node/node{number}/cpulist") for number in numbers}
    return {cpu: number for number, cpus in cpulists.items() for cpu in cpus}


def _processors(cpuinfo: str) -> list[_Processor]:
    processors = []
    for block in cpuinfo.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if (number := fields.get("processor", "")).isdecimal():
            flags = frozenset(fields.get("flags", "").split())
            processors.append(_Processor(int(number), flags, fields.get("model name", "")))
    return processors


def _memory_total(root: Path) -> int | None:
    """Bytes of memory present."""
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        number = (value.split() or [""])[0]
        if name == "MemTotal" and number.isdecimal():
            return int(number) * _KIB
    return None


def _cpus(path: Path) -> frozenset[int]:
    """The ids a cpulist file names; none if it is missing or malformed."""
    try:
        return frozenset(parse_cpus(read_text(path) or ""))
    except ValueError:
        return frozenset()
