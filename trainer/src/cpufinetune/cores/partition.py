"""Divides physical cores: within a CPU quota, within NUMA nodes, and always into equal parts."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cpufinetune.cores.description import Core, Description


class LayoutError(ValueError):
    """No layout can satisfy what was asked."""


def by_node(cores: Iterable[Core]) -> dict[int, list[Core]]:
    """Group cores, already ordered by NUMA node, into their nodes."""
    return {node: list(group) for node, group in groupby(cores, key=lambda core: core.node)}


def within_quota(description: Description) -> tuple[Core, ...]:
    """The physical cores that the CFS quota can keep busy: all, or the floor of the quota, at least one.

    More threads than that would spend each period's quota early and then all stand still. The cores come from
    the fewest NUMA nodes that hold them, in even shares.

    Raises:
        LayoutError: There is no CPU at all.
    """
    cores = description.cores
    if not cores:
        raise LayoutError("no CPU is allowed: affinity mask, cpuset and online CPUs have none in common")
    budget = len(cores) if description.quota is None else max(1, math.floor(description.quota))
    if budget >= len(cores):
        return cores
    nodes = sorted(by_node(cores).values(), key=len, reverse=True)
    count = next(n for n in range(1, len(nodes) + 1) if sum(map(len, nodes[:n])) >= budget)
    chosen: list[Core] = []
    # The smallest goes first, so that what it cannot give is shared by the larger ones.
    for left, node in zip(range(count, 0, -1), reversed(nodes[:count]), strict=True):
        chosen += node[: (budget - len(chosen)) // left]
    return tuple(sorted(chosen, key=lambda core: (core.node, core.cpu)))


def divide(cores: Sequence[Core], parts: int) -> list[list[Core]]:
    """Cut cores into disjoint parts of equal size, in NUMA order; cores that do not divide evenly are left over.

    No part spans NUMA nodes unless there are fewer parts than nodes. Needs `1 <= parts <= len(cores)`.
    """
    nodes = list(by_node(cores).values())
    if parts < len(nodes):
        size = len(cores) // parts
        return [list(cores[part * size : (part + 1) * size]) for part in range(parts)]
    # The largest size of which enough parts fit; size 1 always does.
    size = next(n for n in range(len(cores) // parts, 0, -1) if sum(len(node) // n for node in nodes) >= parts)
    counts = [0] * len(nodes)
    for _ in range(parts):
        room = {node: len(nodes[node]) - count * size for node, count in enumerate(counts)}
        fitting = [node for node in room if room[node] >= size]
        # Spread over the nodes: each has memory channels of its own.
        counts[min(fitting, key=lambda node: (counts[node], -room[node]))] += 1
    return [
        node[part * size : (part + 1) * size]
        for node, count in zip(nodes, counts, strict=True)
        for part in range(count)
    ]


def one_part_a_node(cores: Sequence[Core]) -> list[list[Core]]:
    """One part a NUMA node, all as large as the smallest kept node's.

    A small node would hold every other back to its size, so the nodes kept are those with which most cores work:
    of two nodes, the smaller stays out when it has less than half the cores of the larger.
    """
    nodes = by_node(cores)
    largest = sorted(nodes.values(), key=len, reverse=True)
    count = max(range(1, len(largest) + 1), key=lambda n: (n * len(largest[n - 1]), n))
    size = len(largest[count - 1])
    kept = {node[0].node for node in largest[:count]}
    return [node[:size] for number, node in nodes.items() if number in kept]
