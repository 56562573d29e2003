"""Groups end without a trace, and processes without a hang."""

from __future__ import annotations

import time
from typing import Any

import pytest

CYCLES = 100
WARM = 10
KIB_A_CYCLE = 100  # what the library itself keeps of a communicator
SOON = 10.0
TOPOLOGIES = [(2, "flat"), (2, "shared"), (4, "nodes")]


@pytest.mark.parametrize("world", ["2-flat", "2-shared"], indirect=True)
def test_groups_that_come_and_go_leave_nothing_behind(world: Any) -> None:
    before = world.call("failures.cycle", number=WARM)
    after = world.call("failures.cycle", number=CYCLES, settled=[one["threads"] for one in before])
    for first, last in zip(before, after, strict=True):
        print(f"{world.described}: {first} before, {last} after {CYCLES} cycles")
        assert last["threads"] <= first["threads"]
        assert last["files"] <= first["files"] + 2
        assert last["maps"] == first["maps"]
        assert last["segments"] == first["segments"] == 0
        assert last["kib"] - first["kib"] < KIB_A_CYCLE * CYCLES


@pytest.mark.parametrize(("size", "topology"), TOPOLOGIES)
def test_leaving_ends_what_is_queued(start: Any, left_behind: Any, size: int, topology: str) -> None:
    world = start(size, topology).join(gloo=False)
    world.call("failures.hurry_away")
    assert world.end() == [0] * size, world.ranks[0].output()
    assert left_behind() == set()


@pytest.mark.parametrize(("size", "topology"), TOPOLOGIES)
def test_a_script_may_forget_to_leave(start: Any, left_behind: Any, size: int, topology: str) -> None:
    world = start(size, topology).join()
    world.call("failures.add")
    since = time.monotonic()
    assert world.end() == [0] * size, world.ranks[0].output()
    assert time.monotonic() - since < SOON
    assert left_behind() == set()


@pytest.mark.parametrize("topology", ["flat", "shared"])
def test_a_script_may_forget_what_it_waits_for(start: Any, topology: str) -> None:
    world = start(2, topology).join(timeout=5.0, gloo=False)
    world.call("failures.abandon")
    since = time.monotonic()
    assert world.end() == [0, 0], world.ranks[0].output()
    assert time.monotonic() - since < 2 * SOON
