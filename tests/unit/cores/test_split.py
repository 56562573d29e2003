from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.cores import LayoutError, format_cpus, plan_layout, split

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.cores import Description


@pytest.mark.parametrize(
    ("description", "nodes", "expected"),
    [
        pytest.param({"nodes": [8]}, 2, ["0-3", "4-7"], id="halves of one NUMA node"),
        pytest.param({"nodes": [4], "threads": 2}, 2, ["0-1,4-5", "2-3,6-7"], id="siblings stay together"),
        pytest.param({"nodes": [28] * 4}, 4, ["0-27", "28-55", "56-83", "84-111"], id="NUMA nodes become nodes"),
        pytest.param({"nodes": [28] * 4}, 2, ["0-55", "56-111"], id="pairs of NUMA nodes become nodes"),
        pytest.param({"nodes": [10, 6]}, 2, ["0-5", "10-15"], id="shares are equal and inside NUMA nodes"),
        pytest.param({"nodes": [5]}, 2, ["0-1", "2-3"], id="a core that does not divide belongs to none"),
        pytest.param({"nodes": [32, 32], "quota": 4.0}, 2, ["0-1", "2-3"], id="only cores within the quota"),
        pytest.param({"nodes": [2]}, 2, ["0", "1"], id="a core a node"),
    ],
)
def test_shares_are_equal_and_disjoint(
    machine: Callable[..., Description], description: dict[str, Any], nodes: int, expected: list[str]
) -> None:
    shares = split(machine(**description), nodes)
    assert [format_cpus(cpu.id for cpu in share.cpus) for share in shares] == expected
    assert len({plan_layout(share).ranks[0].threads for share in shares}) == 1
    assert all(plan_layout(share).pinned for share in shares)


def test_memory_and_quota_are_divided(machine: Callable[..., Description]) -> None:
    shares = split(machine([8], quota=5.0, memory=1001), 2)
    assert [(share.quota, share.memory_limit) for share in shares] == [(2.5, 500)] * 2


def test_one_node_is_the_whole_machine(machine: Callable[..., Description]) -> None:
    whole = machine([8], threads=2, quota=2.5, memory=1000)
    assert split(whole, 1) == (whole,)


@pytest.mark.parametrize("quota", [None, 2.0])
def test_more_nodes_than_cores_take_turns_and_their_layouts_say_so(
    machine: Callable[..., Description], quota: float | None
) -> None:
    shares = split(machine([2 if quota is None else 64], quota=quota), 3)
    layouts = [plan_layout(share) for share in shares]
    assert [layout.ranks[0].cpus for layout in layouts] == [(0,), (1,), (0,)]
    assert not any(layout.pinned for layout in layouts)
    assert all("oversubscribed" in "\n".join(layout.notes) for layout in layouts)


@pytest.mark.parametrize(("cores", "nodes"), [([4], 0), ([], 1), ([], 2)])
def test_impossible_splits_are_layout_errors(machine: Callable[..., Description], cores: list[int], nodes: int) -> None:
    with pytest.raises(LayoutError):
        split(machine(cores), nodes)
