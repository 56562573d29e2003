"""Several groups at once, operations in flight, and what a caller holds of them."""

from __future__ import annotations

from typing import Any

import pytest

SEEDS = range(2)
# Sub-groups are made of four ranks.
of_four = pytest.mark.parametrize("world", ["4-flat", "4-shared", "4-nodes"], indirect=True)


@pytest.fixture
def groups(world: Any) -> Any:
    """The sub-groups of four ranks, for one test."""
    yield world, world.call("groups.make")
    world.call("groups.drop")


@of_four
def test_groups_of_some_ranks_add_for_themselves_at_the_same_time(groups: Any) -> None:
    world, described = groups
    assert sorted(described[0]) == ["(0, 1)", "(0, 3)"]
    near = "2 ranks over oneCCL" if world.topology == "flat" else "2 ranks in shared memory"
    assert described[0]["(0, 1)"] == near
    assert described[0]["(0, 3)"] == ("2 ranks over oneCCL" if world.topology == "nodes" else near)
    assert described[1]["(1,)"] == "1 ranks over oneCCL"
    world.call("groups.sub_groups")
    world.call("groups.crossing")


@of_four
@pytest.mark.parametrize("seed", SEEDS)
def test_operations_of_several_groups_are_waited_for_in_any_order(groups: Any, seed: int) -> None:
    world, _ = groups
    assert min(world.call("groups.storm", seed=seed)) >= 60


@pytest.mark.parametrize("seed", SEEDS)
def test_operations_are_waited_for_in_any_order(world: Any, seed: int) -> None:
    assert set(world.call("groups.storm", seed=seed + 10)) == {200}


@pytest.mark.parametrize("check", ["futures", "dropped", "batched", "early"])
def test_work_is_what_torch_expects(world: Any, check: str) -> None:
    world.call(f"groups.{check}")


@pytest.mark.parametrize("world", ["2-shared"], indirect=True)
def test_a_profiler_names_the_operations(world: Any) -> None:
    expected = ["ccl:all_gather", "ccl:all_reduce", "ccl:all_reduce_bf16", "ccl:all_to_all", "ccl:broadcast"]
    assert world.call("groups.names")[0] == expected
