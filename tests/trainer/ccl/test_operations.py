"""Every operation gives what it must, bit for bit, however the ranks are connected."""

from __future__ import annotations

from typing import Any

import pytest

DESCRIPTIONS = {
    (2, "flat"): "2 ranks over oneCCL",
    (2, "shared"): "2 ranks in shared memory",
    (4, "flat"): "4 ranks over oneCCL",
    (4, "shared"): "4 ranks in shared memory",
    (4, "nodes"): "4 ranks in shared memory on 2 nodes, one of each over oneCCL",
}


def test_the_group_says_how_it_is_connected(world: Any) -> None:
    assert world.described == DESCRIPTIONS[world.size, world.topology]


@pytest.mark.parametrize("operation", ["all_reduce", "reduce", "reduce_scatter"])
def test_reductions_of_every_type_and_size_are_exact(world: Any, operation: str) -> None:
    (counts, *others) = world.call(f"reductions.{operation}")
    assert counts["exact"] >= 160
    # Gloo has no bool, no int16 and no AVG, and reduces to one rank only; the rest was compared with it.
    assert sum(other["gloo"] for other in [counts, *others]) >= 30, counts


@pytest.mark.parametrize("operation", ["edges", "positions", "special", "coalesced", "compressed"])
def test_sums_are_in_the_order_of_ranks(world: Any, operation: str) -> None:
    world.call(f"reductions.{operation}")


@pytest.mark.parametrize("operation", ["broadcast", "all_gather", "gather", "scatter", "all_to_all", "pairs"])
def test_data_of_every_type_and_size_arrives(world: Any, operation: str) -> None:
    assert sum(world.call(f"movement.{operation}")) >= 30


@pytest.mark.parametrize("operation", ["one_way", "objects", "barrier", "other_types"])
def test_data_arrives(world: Any, operation: str) -> None:
    world.call(f"movement.{operation}")
