from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.cores import Isa
from cpufinetune.doctor.check import Check, Status, healthy
from cpufinetune.doctor.checks import examine
from cpufinetune.doctor.checks.memory import MIB, shared_need
from cpufinetune.doctor.facts import Facts, SharedMemory, Throttling

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.cores import Description

GIB = 1 << 30
OK, NOTE, PROBLEM = Status.OK, Status.NOTE, Status.PROBLEM
SHARED_SOURCE = Path(__file__).parents[3] / "trainer/src/cpufinetune/comms/ccl/csrc/shared.cpp"


def the(name: str, checks: list[Check]) -> Check:
    return next(check for check in checks if check.name == name)


def test_a_good_machine_has_nothing_to_say(facts: Callable[..., Facts]) -> None:
    checks = examine(facts())
    assert [check for check in checks if check.status is not OK] == []
    assert len({check.name for check in checks}) == len(checks)
    assert healthy(checks)


CASES = [
    pytest.param("instruction sets", {"_isa": Isa.from_flags(("avx2",))}, NOTE, "half the width", id="AVX2 alone"),
    pytest.param("instruction sets", {"_isa": Isa.from_flags(("sse2",))}, NOTE, "without AVX2", id="not even AVX2"),
    pytest.param(
        "instruction sets", {"_isa": Isa.from_flags(("avx2", "avx512f"))}, NOTE, "AVX512_BF16", id="AVX512, no bf16"
    ),
    pytest.param("instruction sets", {"machine": "aarch64"}, NOTE, "only x86", id="another architecture"),
    pytest.param("AMX tiles", {"amx_refusal": ""}, OK, "granted", id="AMX granted"),
    pytest.param("AMX tiles", {"amx_refusal": "Operation not permitted"}, NOTE, "arch_prctl", id="AMX refused"),
    pytest.param("cores", {"_cpus": ()}, PROBLEM, "nothing can run", id="no core"),
    pytest.param("ranks", {"_cpus": ()}, PROBLEM, "no core", id="no core, so no rank"),
    pytest.param("ranks", {"ranks": 3}, NOTE, "idle: cores 3", id="4 cores do not divide by 3"),
    pytest.param("ranks", {"ranks": 5}, NOTE, "share cores", id="more ranks than cores"),
    pytest.param("ranks", {"ranks": 2}, OK, "rank 1: cores 2-3", id="two ranks"),
    pytest.param("SMT", {"strangers": frozenset({4, 5})}, NOTE, "threads 4-5", id="siblings of another container"),
    pytest.param("CPU quota", {"_quota": 0.5}, PROBLEM, "0.5 CPUs", id="half a CPU"),
    pytest.param("CPU quota", {"_quota": 1.0}, NOTE, "1 of 4 cores compute", id="one CPU of four"),
    pytest.param("CPU quota", {"_quota": 2.5}, NOTE, "2 of 4 cores compute", id="a broken number of CPUs"),
    pytest.param("CPU quota", {"_quota": 4.0}, OK, "4 CPUs", id="as many as there are"),
    pytest.param("throttling", {"throttling": Throttling(1000, 10, 0.2)}, OK, "10 of 1000", id="seldom throttled"),
    pytest.param("throttling", {"throttling": Throttling(1000, 250, 9.0)}, NOTE, "in 25%", id="often throttled"),
    pytest.param("throttling", {"throttling": Throttling(0, 0, 0.0)}, OK, "none", id="no quota, no periods"),
    pytest.param("memory", {"_memory_limit": 512 * MIB}, PROBLEM, "kills", id="no room to import"),
    pytest.param("memory", {"_memory_limit": 2 * GIB, "ranks": 2}, NOTE, "1.0 GiB a rank", id="little for each rank"),
    pytest.param("memory", {"_memory_limit": 2 * GIB}, OK, "2.0 GiB", id="enough for one"),
    pytest.param("memory", {"_memory_limit": None}, OK, "unknown", id="memory unknown"),
    pytest.param("huge pages", {"huge_pages": "never"}, NOTE, "page fault", id="no huge pages"),
    pytest.param("huge pages", {"huge_pages": None}, OK, "unknown", id="huge pages unknown"),
    pytest.param("huge pages", {"huge_pages": "madvise"}, OK, "madvise", id="huge pages for who asks"),
    pytest.param("clock", {"clocks": frozenset({("acpi-cpufreq", "powersave")})}, NOTE, "low", id="the lowest clock"),
    pytest.param("clock", {"clocks": frozenset({("", "powersave")})}, NOTE, "unknown driver", id="of unknown driver"),
    pytest.param("clock", {"clocks": frozenset({("intel_pstate", "powersave")})}, OK, "intel_pstate", id="by load"),
    pytest.param("clock", {"clocks": frozenset({("intel_cpufreq", "schedutil")})}, OK, "schedutil", id="schedutil"),
]


@pytest.mark.parametrize(("name", "changes", "status", "words"), CASES)
def test_the_machine_is_judged(
    facts: Callable[..., Facts], name: str, changes: dict[str, Any], status: Status, words: str
) -> None:
    check = the(name, examine(facts(**changes)))
    assert check.status is status, check
    assert words in f"{check.value} {check.cost} {check.cure}"
    assert bool(check.cost) == bool(check.cure) == (status is not OK)


@pytest.mark.parametrize(
    ("shared", "status", "words"),
    [
        pytest.param(None, NOTE, "over TCP", id="missing"),
        pytest.param((GIB, GIB, "Permission denied"), NOTE, "over TCP", id="read-only"),
        pytest.param((64 * MIB, 64 * MIB, ""), NOTE, "bus error", id="a container's default"),
        pytest.param((4 * MIB, 4 * MIB, ""), NOTE, "over TCP", id="too small"),
        pytest.param((GIB, 4 * MIB, ""), NOTE, "over TCP", id="full"),
        pytest.param((65 * MIB, 65 * MIB, ""), OK, "", id="enough"),
    ],
)
def test_shared_memory_costs_speed_where_it_is_missing(
    facts: Callable[..., Facts], shared: tuple[int, int, str] | None, status: Status, words: str
) -> None:
    memory = None if shared is None else SharedMemory(*shared)
    found = the("shared memory", examine(facts(shared_memory=memory, ranks=2)))
    assert found.status is status
    assert words in found.cost


def test_the_backend_needs_no_more_shared_memory_than_is_said() -> None:
    text = SHARED_SOURCE.read_text(encoding="utf-8")
    found = dict(re.findall(r"constexpr size_t (k\w+) = ([^;]+);", text))
    piece, block, blocks, line = ((int(a) << int(b or 0)) for a, _, b in (found[k].partition(" << ") for k in KEYS))
    formula = "return kStages * ranks * sizeof(Flag) + 2 * ranks * kPiece + kBlocks * kBlock;"
    assert formula in text, "the segment has another size now: change checks/memory.py, too"
    for ranks in (1, 2, 16, 128):
        assert 3 * ranks * line + 2 * ranks * piece + blocks * block <= shared_need(ranks)


KEYS = ("kPiece", "kBlock", "kBlocks", "kLine")


def test_numa_nodes_and_threads_are_told(facts: Callable[..., Facts], machine: Callable[..., Description]) -> None:
    checks = examine(facts(description=machine((2, 4), threads=2)))
    assert the("NUMA", checks).value == "node 0: 2 cores, node 1: 4 cores"
    assert the("SMT", checks).value == "2 threads a core, of which one computes"
    assert the("cores", checks).value == "6 cores: CPUs 0-11"
    assert the("ranks", checks).status is NOTE
