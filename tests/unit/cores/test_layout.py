from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.cores import LayoutError, format_cpus, plan_layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.cores import Auto, Description

# name: machine, plan, the cpulists of the ranks, the NUMA node of each, what one of the notes says
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], list[int | None], str]] = {
    "a c6i.16xlarge with all siblings computes on one thread a core": (
        {"nodes": [32], "threads": 2}, {}, ["0-31"], [0], "idle SMT siblings: 32",
    ),
    "a c6i.16xlarge with one thread a core has nothing to leave out": (
        {"nodes": [32], "threads": 2, "keep": range(32)}, {}, ["0-31"], [0], "",
    ),
    "only second threads allowed: they compute": (
        {"nodes": [4], "threads": 2, "keep": [1, 5, 6, 7]}, {}, ["1,6-7"], [0], "idle SMT siblings: 1",
    ),
    "Sapphire Rapids in SNC-2 gets a rank a NUMA node": (
        {"nodes": [28] * 4, "threads": 2}, {}, ["0-27", "28-55", "56-83", "84-111"], [0, 1, 2, 3],
        "idle SMT siblings: 112",
    ),
    "eight ranks on four NUMA nodes are two a node": (
        {"nodes": [28] * 4}, {"ranks": 8},
        ["0-13", "14-27", "28-41", "42-55", "56-69", "70-83", "84-97", "98-111"], [0, 0, 1, 1, 2, 2, 3, 3], "",
    ),
    "five ranks on four NUMA nodes do not span, the rest idles": (
        {"nodes": [28] * 4}, {"ranks": 5},
        ["0-13", "14-27", "28-41", "56-69", "84-97"], [0, 0, 1, 2, 3], "idle on NUMA node 1: cores 42-55",
    ),
    "fewer ranks than NUMA nodes span them": (
        {"nodes": [28] * 4}, {"ranks": 2}, ["0-55", "56-111"], [None, None], "ranks that span NUMA nodes: 0, 1",
    ),
    "a quota without a cpuset takes cores of one NUMA node": (
        {"nodes": [32, 32], "quota": 4.0}, {}, ["0-3"], [0], "quota of 4 keeps 4 cores of 64 busy; cores 0-3",
    ),
    "two ranks under a quota share one NUMA node": (
        {"nodes": [32, 32], "quota": 4.0}, {"ranks": 2}, ["0-1", "2-3"], [0, 0], "other containers may use them",
    ),
    "a quota takes the NUMA node that holds it": (
        {"nodes": [2, 6], "quota": 5.0}, {}, ["2-6"], [1], "",
    ),
    "a quota larger than any NUMA node is taken evenly": (
        {"nodes": [28, 28], "quota": 40.0}, {}, ["0-19", "28-47"], [0, 1], "",
    ),
    "an uneven quota over two NUMA nodes leaves ranks equal": (
        {"nodes": [4, 4], "quota": 7.9}, {}, ["0-2", "4-6"], [0, 1], "idle on NUMA node 0: cores 3; every rank",
    ),
    "a quota of 2.5 is two cores": ({"nodes": [8], "quota": 2.5}, {}, ["0-1"], [0], "quota of 2.5 keeps 2 cores"),
    "a quota below one CPU is one core": ({"nodes": [8], "quota": 0.5}, {}, ["0"], [0], "less than one CPU"),
    "a quota counted in hardware threads does not limit cores": (
        {"nodes": [4], "threads": 2, "quota": 8.0}, {}, ["0-3"], [0], "idle SMT siblings: 4",
    ),
    "10 and 6 cores are two ranks of 6": (
        {"nodes": [10, 6]}, {}, ["0-5", "10-15"], [0, 1], "idle on NUMA node 0: cores 6-9; every rank gets 6 cores",
    ),
    "10 and 5 cores are two ranks of 5": ({"nodes": [10, 5]}, {}, ["0-4", "10-14"], [0, 1], "cores 5-9; every rank"),
    "15 and 1 cores are one rank of 15": ({"nodes": [15, 1]}, {}, ["0-14"], [0], "NUMA node 1: all of cores 15"),
    "two ranks on 15 and 1 cores use the large node": (
        {"nodes": [15, 1]}, {"ranks": 2}, ["0-6", "7-13"], [0, 0], "idle on NUMA node 1: all of",
    ),
    "ranks go to the NUMA node with fewest first": (
        {"nodes": [40, 10, 10]}, {"ranks": 4}, ["0-9", "10-19", "40-49", "50-59"], [0, 0, 1, 2], "",
    ),
    "of four NUMA nodes the small one stays out if it would cost cores": (
        {"nodes": [28, 28, 28, 14]}, {}, ["0-27", "28-55", "56-83"], [0, 1, 2], "idle on NUMA node 3: all of",
    ),
    "a memory-only NUMA node gets no rank": ({"nodes": [4, 0, 4]}, {}, ["0-3", "4-7"], [0, 2], ""),
    "ids need not be contiguous": ({"nodes": [8, 8], "keep": [1, 5, 9, 12]}, {}, ["1,5", "9,12"], [0, 1], ""),
    "a VM of two cores is one rank": ({"nodes": [2]}, {}, ["0-1"], [0], ""),
    "one core is one rank": ({"nodes": [1]}, {}, ["0"], [0], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ranks_are_laid_out(
    machine: Callable[..., Description],
    case: tuple[dict[str, Any], dict[str, Any], list[str], list[int | None], str],
) -> None:
    description, plan, cpus, nodes, note = case
    layout = plan_layout(machine(**description), **plan)
    assert [format_cpus(rank.cpus) for rank in layout.ranks] == cpus
    assert [rank.node for rank in layout.ranks] == nodes
    assert layout.pinned
    assert note in "\n".join(layout.notes)


@pytest.mark.parametrize(
    ("nodes", "plan", "expected", "note"),
    [
        ([16], {"communication_cores": 2}, [("0-13", "14-15")], ""),
        ([8, 8], {"communication_cores": 1}, [("0-6", "7"), ("8-14", "15")], ""),
        ([10, 6], {"communication_cores": 1}, [("0-4", "5"), ("10-14", "15")], "idle on NUMA node 0: cores 6-9"),
        (
            [4],
            {"communication_cores": 3, "ranks": 2},
            [("0", "1"), ("2", "3")],
            "1 core instead of 3",
        ),
        ([1], {"communication_cores": 1}, [("0", "")], "no communication cores"),
        ([2], {"communication_cores": 1, "ranks": 2}, [("0", ""), ("1", "")], "no communication cores"),
    ],
)
def test_communication_cores_come_off_the_end_of_each_rank(
    machine: Callable[..., Description],
    nodes: list[int],
    plan: dict[str, Any],
    expected: list[tuple[str, str]],
    note: str,
) -> None:
    layout = plan_layout(machine(nodes), **plan)
    assert [(format_cpus(rank.cpus), format_cpus(rank.communication_cpus)) for rank in layout.ranks] == expected
    assert note in "\n".join(layout.notes)
    assert bool(note) == bool(layout.notes)


def test_more_ranks_than_cores_share_them_in_turn_and_are_not_pinned(machine: Callable[..., Description]) -> None:
    layout = plan_layout(machine([2], threads=2), ranks=5)
    assert [rank.cpus for rank in layout.ranks] == [(0,), (1,), (0,), (1,), (0,)]
    assert {rank.threads for rank in layout.ranks} == {1}
    assert not layout.pinned
    assert "oversubscribed: 5 ranks share 2 cores" in "\n".join(layout.notes)


@pytest.mark.parametrize(
    ("description", "plan", "message"),
    [
        ({}, {"ranks": 0}, "at least 1"),
        ({}, {"ranks": -1}, "at least 1"),
        ({}, {"communication_cores": -1}, "negative"),
        ({"nodes": []}, {}, "no CPU is allowed"),
    ],
)
def test_impossible_input_is_a_layout_error(
    machine: Callable[..., Description], description: dict[str, Any], plan: dict[str, Any], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        plan_layout(machine(**description), **plan)


NODES = ([1], [2], [5], [16], [10, 6], [15, 1], [6, 10, 3], [0, 7], [28] * 4, [3, 3, 3, 1], [40, 10, 10], [1, 1])
QUOTAS = (None, 0.5, 1.0, 2.5, 4.0, 7.0, 15.5, 40.0)
ALLOWED = {"all": lambda _: True, "odd": lambda cpu: cpu % 2 == 1, "not every third": lambda cpu: cpu % 3 != 0}


@pytest.mark.parametrize("allowed", ALLOWED.values(), ids=ALLOWED)
@pytest.mark.parametrize("nodes", NODES, ids=str)
def test_every_layout_keeps_the_rules(
    machine: Callable[..., Description], nodes: list[int], allowed: Callable[[int], bool]
) -> None:
    keep = [cpu for cpu in range(2 * sum(nodes)) if allowed(cpu)]
    plans: tuple[int | Auto, ...] = ("Auto", 1, 2, 3, 4, 7, 20)
    for threads, quota, ranks, communication in product((1, 2), QUOTAS, plans, (0, 1, 3)):
        description = machine(nodes, threads=threads, keep=keep, quota=quota)
        if description.cpus:
            check(description, ranks, communication)


def check(description: Description, ranks: int | Auto, communication: int) -> None:
    layout = plan_layout(description, ranks=ranks, communication_cores=communication)
    used = [cpu for rank in layout.ranks for cpu in (*rank.cpus, *rank.communication_cpus)]
    core = {cpu.id: cpu.core for cpu in description.cpus}
    node = {cpu.id: cpu.node for cpu in description.cpus}
    budget = len(description.cores)
    if description.quota is not None:
        budget = min(budget, max(1, math.floor(description.quota)))
    assert ranks in ("Auto", len(layout.ranks))
    assert set(used) <= set(core)
    assert len({rank.threads for rank in layout.ranks}) == 1
    assert all(rank.threads == len(rank.cpus) >= 1 for rank in layout.ranks)
    assert len({len(rank.communication_cpus) for rank in layout.ranks}) == 1
    assert layout.pinned == (len(layout.ranks) <= budget)
    if not layout.pinned:
        assert layout.ranks[0].threads == 1
        return
    assert len(used) == len({core[cpu] for cpu in used}) <= budget
    assert ranks != 1 or len(used) == budget
    for rank in layout.ranks:
        spanned = {node[cpu] for cpu in (*rank.cpus, *rank.communication_cpus)}
        assert spanned == {rank.node} or len(layout.ranks) < len(set(node.values()))
