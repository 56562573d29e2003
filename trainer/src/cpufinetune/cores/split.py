"""Shares one machine among simulated nodes, so that a job of several nodes runs without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cpufinetune.cores.partition import LayoutError, divide, within_quota

if TYPE_CHECKING:
    from cpufinetune.cores.description import Description


def split(description: Description, nodes: int) -> tuple[Description, ...]:
    """Describe each of `nodes` equal shares of this machine.

    Shares are contiguous physical cores with their siblings, cut at NUMA boundaries where possible; cores that do
    not divide evenly belong to none, as do cores beyond the quota. Memory and quota are divided. With more nodes
    than cores, nodes take single cores in turn and are marked `shared`.

    Raises:
        LayoutError: `nodes` below 1, or no CPU.
    """
    if nodes < 1:
        raise LayoutError(f"nodes is {nodes}: there must be at least 1")
    cores = within_quota(description)
    if nodes == 1:
        return (description,)
    crowded = nodes > len(cores)
    parts = [[cores[node % len(cores)]] for node in range(nodes)] if crowded else divide(cores, nodes)
    memory = description.memory_limit
    return tuple(
        replace(
            description,
            cpus=tuple(sorted((cpu for core in part for cpu in core.cpus), key=lambda cpu: cpu.id)),
            quota=None if description.quota is None else description.quota / nodes,
            memory_limit=None if memory is None else memory // nodes,
            shared=description.shared or crowded,
        )
        for part in parts
    )
