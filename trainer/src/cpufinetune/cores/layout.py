"""Plans which cores each rank of this node computes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cpufinetune.cores.cpulist import format_cpus
from cpufinetune.cores.partition import LayoutError, by_node, divide, one_part_a_node, within_quota

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cpufinetune.cores.description import Core, Description, Isa

Auto = Literal["Auto"]


@dataclass(frozen=True, slots=True)
class RankLayout:
    """Where one rank runs.

    Attributes:
        cpus: CPU ids to compute on, one hardware thread a physical core.
        communication_cpus: CPU ids of cores kept free for the collectives' own threads.
        threads: Compute threads, as many as `cpus`.
        node: The NUMA node of all its cores, None if they span several.
    """

    cpus: tuple[int, ...]
    communication_cpus: tuple[int, ...]
    threads: int
    node: int | None


@dataclass(frozen=True, slots=True)
class Layout:
    """All ranks of one node of the job.

    Attributes:
        ranks: By local rank; neighbours in number are neighbours on the machine.
        isa: Features common to all allowed CPUs.
        pinned: Whether every rank has its cores to itself and should be bound to them.
        notes: What a reader should know: cores left idle and why, requests not met.
    """

    ranks: tuple[RankLayout, ...]
    isa: Isa
    pinned: bool
    notes: tuple[str, ...]


def plan_layout(description: Description, *, ranks: int | Auto = "Auto", communication_cores: int = 0) -> Layout:
    """Lay ranks out on physical cores, all with the same number of threads: the slowest rank sets the pace.

    Args:
        description: The CPU as this process may use it.
        ranks: Ranks on this node; Auto is one for each NUMA node worth a rank.
        communication_cores: Cores a rank to keep free of compute threads, taken off its end.

    Raises:
        LayoutError: `ranks` below 1, `communication_cores` below 0, or no CPU.
    """
    if ranks != "Auto" and ranks < 1:
        raise LayoutError(f"ranks is {ranks}: a node needs at least 1")
    if communication_cores < 0:
        raise LayoutError(f"communication_cores is {communication_cores}: it cannot be negative")
    cores = within_quota(description)
    oversubscribed = ranks != "Auto" and ranks > len(cores)
    if ranks == "Auto":
        parts = one_part_a_node(cores)
    elif oversubscribed:
        parts = [[cores[rank % len(cores)]] for rank in range(ranks)]
    else:
        parts = divide(cores, ranks)
    # All parts are of one size, so all ranks give up equally many cores.
    communication = min(communication_cores, len(parts[0]) - 1)
    notes = [
        *_quota_notes(description, cores),
        *_sharing_notes(description, cores, len(parts)),
        *_idle_notes(cores, parts),
        *_communication_notes(communication_cores, communication),
    ]
    pinned = not (oversubscribed or description.shared)
    return Layout(tuple(_rank(part, communication) for part in parts), description.isa, pinned, tuple(notes))


def _rank(part: Sequence[Core], communication: int) -> RankLayout:
    cpus = tuple(core.cpu for core in part)
    threads = len(cpus) - communication
    nodes = {core.node for core in part}
    return RankLayout(cpus[:threads], cpus[threads:], threads, nodes.pop() if len(nodes) == 1 else None)


def _quota_notes(description: Description, cores: Sequence[Core]) -> list[str]:
    quota, available = description.quota, len(description.cores)
    notes = []
    if quota is not None and quota < 1:
        notes.append(f"the CPU quota of {quota:g} is less than one CPU: every thread will be throttled")
    if len(cores) < available:
        chosen = format_cpus(core.cpu for core in cores)
        notes.append(
            f"the CPU quota of {quota:g} keeps {_cores(len(cores))} of {available} busy; cores {chosen} were chosen, "
            "but other containers may use them too: only a cpuset (static CPU manager policy) makes cores exclusive"
        )
    return notes


def _sharing_notes(description: Description, cores: Sequence[Core], ranks: int) -> list[str]:
    if ranks > len(cores):
        return [f"oversubscribed: {ranks} ranks share {_cores(len(cores))}, one thread each, not pinned"]
    if description.shared:
        return ["oversubscribed: other simulated nodes share these cores, not pinned"]
    return []


def _idle_notes(cores: Sequence[Core], parts: Sequence[Sequence[Core]]) -> list[str]:
    """One note a NUMA node with idle cores, and what spans nodes or SMT siblings means for them."""
    used = {core.cpu for part in parts for core in part}
    size = len(parts[0])
    notes = []
    for node, members in by_node(cores).items():
        idle = [core.cpu for core in members if core.cpu not in used]
        if len(idle) == len(members):
            why = f"a rank on its {_cores(len(idle))} would slow down every other"
            notes.append(f"idle on NUMA node {node}: all of cores {format_cpus(idle)}; {why}")
        elif idle:
            notes.append(f"idle on NUMA node {node}: cores {format_cpus(idle)}; every rank gets {_cores(size)}")
    spanning = [str(rank) for rank, part in enumerate(parts) if len({core.node for core in part}) > 1]
    if spanning:
        notes.append(f"ranks that span NUMA nodes: {', '.join(spanning)}; there are fewer ranks than nodes")
    siblings = sum(len(core.cpus) - 1 for core in cores if core.cpu in used)
    if siblings:
        notes.append(f"idle SMT siblings: {siblings}; two threads of a core share its vector units")
    return notes


def _communication_notes(asked: int, given: int) -> list[str]:
    if given == asked:
        return []
    if given == 0:
        return ["no communication cores: each rank has 1 core only, and computes on it"]
    return [f"{_cores(given)} instead of {asked} for communication: each rank keeps 1 to compute"]


def _cores(count: int) -> str:
    return f"{count} core" if count == 1 else f"{count} cores"
