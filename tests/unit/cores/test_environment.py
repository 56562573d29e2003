from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cpufinetune.cores import describe, format_cpus, parse_cpus, plan_layout, thread_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.cores import Auto, Description


def test_every_thread_pool_gets_the_compute_threads_of_the_rank(machine: Callable[..., Description]) -> None:
    environment = thread_environment(plan_layout(machine([16]), communication_cores=2).ranks[0])
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert {environment[name] for name in pools} == {"14"}
    assert environment["TOKENIZERS_PARALLELISM"] == "false"


def test_binding_is_left_to_the_affinity_mask(machine: Callable[..., Description]) -> None:
    environment = thread_environment(plan_layout(machine()).ranks[0])
    assert not {"OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY"} & set(environment)


def test_ranks_of_a_layout_share_one_environment(machine: Callable[..., Description]) -> None:
    ranks = plan_layout(machine([10, 6]), communication_cores=1).ranks
    assert thread_environment(ranks[0]) == thread_environment(ranks[1])


@pytest.mark.parametrize(
    ("nodes", "ranks", "communication", "line"),
    [
        ([16], "Auto", 2, "rank 0: cores 0-13 (NUMA 0), 14 threads, 2 for communication"),
        ([1], "Auto", 0, "rank 0: core 0 (NUMA 0), 1 thread"),
        ([2, 2], 1, 0, "rank 0: cores 0-3 (several NUMA nodes), 4 threads"),
        ([1], 2, 0, "rank 0: core 0 (NUMA 0), 1 thread, shared, not pinned"),
    ],
)
def test_a_rank_is_described_in_one_line(
    machine: Callable[..., Description], nodes: list[int], ranks: int | Auto, communication: int, line: str
) -> None:
    assert describe(plan_layout(machine(nodes), ranks=ranks, communication_cores=communication))[0] == line


@pytest.mark.parametrize(
    ("text", "ids"),
    [("", ()), ("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("8-9,11,13-15", (8, 9, 11, 13, 14, 15))],
)
def test_cpulists_survive_a_round_trip(text: str, ids: tuple[int, ...]) -> None:
    assert parse_cpus(text) == ids
    assert format_cpus(ids) == text


def test_cpulists_may_come_unordered_and_with_a_newline() -> None:
    assert parse_cpus("8,0-2,1\n") == (0, 1, 2, 8)
    assert format_cpus([8, 1, 0, 2, 1]) == "0-2,8"


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "1-2-3", "0x1"])
def test_what_is_no_cpulist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cpulist"):
        parse_cpus(text)
