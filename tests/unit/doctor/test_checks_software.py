from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.doctor.check import Check, Status
from cpufinetune.doctor.checks import examine
from cpufinetune.doctor.checks.software import numbers, same_minor
from cpufinetune.doctor.facts import Interface, Requirement, Torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.doctor.facts import Facts
    from cpufinetune.world.interface import Address

OK, NOTE, PROBLEM = Status.OK, Status.NOTE, Status.PROBLEM


def the(name: str, checks: list[Check]) -> Check:
    return next(check for check in checks if check.name == name)


def libraries(*names: str) -> frozenset[str]:
    return frozenset(names)


CASES = [
    pytest.param("threads", {"environ": {"OMP_NUM_THREADS": "64"}}, PROBLEM, "unset OMP_NUM_THREADS", id="64 threads"),
    pytest.param("threads", {"environ": {"MKL_NUM_THREADS": "8"}}, PROBLEM, "MKL_NUM_THREADS=8", id="MKL too"),
    pytest.param("threads", {"environ": {"OMP_NUM_THREADS": "1"}}, NOTE, "ranks get 4 threads each", id="too few"),
    pytest.param("threads", {"environ": {"OMP_NUM_THREADS": "4"}}, OK, "=4", id="the layout's number"),
    pytest.param("threads", {"environ": {"OMP_NUM_THREADS": "4,2"}}, OK, "=4,2", id="a number for each level"),
    pytest.param("threads", {"environ": {"OMP_NUM_THREADS": "many"}}, NOTE, "contradicts", id="not a number"),
    pytest.param("threads", {"environ": {"OMP_NUM_THREADS": ""}}, OK, "not set", id="set to nothing"),
    pytest.param("threads", {"environ": {"OMP_NUM_THREADS": "4"}, "ranks": 2}, NOTE, "2 threads each", id="two ranks"),
    pytest.param("thread binding", {"environ": {"OMP_PROC_BIND": "close"}}, NOTE, "same cores", id="OpenMP binds"),
    pytest.param("thread binding", {"environ": {"OMP_PROC_BIND": "close"}, "ranks": 2}, PROBLEM, "same", id="for two"),
    pytest.param("thread binding", {"environ": {"OMP_PROC_BIND": "FALSE"}}, OK, "layout", id="OpenMP does not bind"),
    pytest.param("thread binding", {"environ": {"KMP_AFFINITY": "compact"}}, OK, "layout", id="another runtime's"),
    pytest.param(
        "thread binding",
        {"environ": {"KMP_AFFINITY": "compact"}, "libraries": libraries("libiomp5.so")},
        NOTE,
        "unset KMP_AFFINITY",
        id="Intel's runtime binds",
    ),
    pytest.param(
        "LD_PRELOAD",
        {"environ": {"LD_PRELOAD": "/lib/libtcmalloc.so.4 libiomp5.so"}, "libraries": libraries("libtcmalloc.so.4.5")},
        NOTE,
        "libiomp5.so was not loaded",
        id="one preload of two missing",
    ),
    pytest.param(
        "LD_PRELOAD",
        {"environ": {"LD_PRELOAD": "libtcmalloc.so.4"}, "libraries": libraries("libtcmalloc.so.4.5.9")},
        OK,
        "libtcmalloc.so.4",
        id="the link of a preload",
    ),
    pytest.param("allocator", {}, OK, "glibc", id="glibc"),
    pytest.param("allocator", {"libraries": libraries("libjemalloc.so.2")}, OK, "libjemalloc.so.2", id="jemalloc"),
    pytest.param("OpenMP", {}, OK, "libgomp.so.1 of torch", id="torch's OpenMP"),
    pytest.param("OpenMP", {"libraries": libraries("libiomp5.so")}, OK, "libiomp5.so, preloaded", id="Intel's OpenMP"),
    pytest.param("OpenMP", {"torch": None}, OK, "system", id="no torch"),
    pytest.param("torch", {"torch": None}, PROBLEM, "not installed", id="no torch at all"),
    pytest.param("torch", {"torch": Torch("2.7.1+cpu")}, PROBLEM, "older than 2.8", id="an old torch"),
    pytest.param("torch", {"torch": Torch("2.15.0+cu132", "CUDA 13.2")}, NOTE, "4 GB", id="a CUDA build"),
    pytest.param("transformers", {"requirements": ()}, OK, "unknown", id="requirements unknown"),
    pytest.param(
        "transformers",
        {"requirements": (Requirement("transformers", "5.0", "4.57.1"),)},
        PROBLEM,
        "5.0 or newer",
        id="old transformers",
    ),
    pytest.param(
        "other packages",
        {"requirements": (Requirement("peft", "0.21", None), Requirement("datasets", "5.0", "4.9"))},
        PROBLEM,
        "peft is missing, needs 0.21; datasets 4.9, needs 5.0",
        id="packages missing and old",
    ),
    pytest.param("IPEX", {"ipex": "2.8.0+cpu"}, PROBLEM, "beside torch 2.9.1", id="IPEX for another torch"),
    pytest.param("IPEX", {"ipex": "2.9.0+cpu"}, OK, "2.9.0", id="IPEX for this torch"),
    pytest.param("oneCCL bindings", {"bindings": "2.8.0+cpu"}, NOTE, "pip uninstall", id="bindings for another torch"),
    pytest.param("oneCCL bindings", {"bindings": "2.9.100+cpu"}, OK, "2.9.100", id="bindings for this torch"),
    pytest.param("oneCCL", {}, OK, "backend compiled", id="the backend is compiled"),
    pytest.param("oneCCL", {"built": False}, NOTE, "first job over oneCCL", id="it will be"),
    pytest.param("oneCCL", {"built": False, "compiler": "", "asked": "c++"}, NOTE, "no c++ to do it", id="nor can be"),
    pytest.param("oneCCL", {"built": False, "unwritable": "/ro"}, NOTE, "cannot be kept in /ro", id="not kept"),
    pytest.param("oneCCL", {"misfit": "there is no x", "misfit_cure": "use lo"}, NOTE, "there is no x", id="misfit"),
    pytest.param("oneCCL", {"built": False, "headers": False}, NOTE, "without headers", id="it has no headers"),
    pytest.param("oneCCL", {"refusal": "no home", "built": False}, NOTE, "XDG_CACHE_HOME", id="nobody's home"),
    pytest.param(
        "oneCCL", {"version": "", "refusal": "broken", "cure": "unset CCL_ROOT"}, NOTE, "unset CCL_ROOT", id="broken"
    ),
]


@pytest.mark.parametrize(("name", "changes", "status", "words"), CASES)
def test_software_is_judged(
    facts: Callable[..., Facts], name: str, changes: dict[str, Any], status: Status, words: str
) -> None:
    check = the(name, examine(facts(**changes)))
    assert check.status is status, check
    assert words in f"{check.value} {check.cost} {check.cure}"
    assert bool(check.cost) == bool(check.cure) == (status is not OK)


@pytest.mark.parametrize(
    ("speed", "status", "words"),
    [
        pytest.param(None, OK, "speed unknown", id="a virtual interface does not tell its speed"),
        pytest.param(25_000, OK, "25000 Mbit/s", id="a fast one"),
        pytest.param(1_000, NOTE, "at least 3.2 s a step", id="a slow one"),
    ],
)
def test_the_network_is_judged_by_what_a_step_sends(
    facts: Callable[..., Facts], address: Callable[[str], Address], speed: int | None, status: Status, words: str
) -> None:
    owned = (address("192.0.2.7/24"), address("fe80::1/64"))
    interfaces = tuple(Interface(name, owned, 1450, speed) for name in ("lo", "eth0", "eth1"))
    check = the("network", examine(facts(interfaces=interfaces, chosen="eth0")))
    assert check.status is status
    assert check.value.startswith("eth0: 192.0.2.7/24; MTU 1450")
    assert check.value.endswith("(also there: eth1)")
    assert words in check.value + check.cost


@pytest.mark.parametrize("chosen", [None, "lo"])
def test_the_loopback_alone_is_a_note(facts: Callable[..., Facts], chosen: str | None) -> None:
    assert the("network", examine(facts(interfaces=(Interface("lo", ()),), chosen=chosen))).status is NOTE


def test_a_network_that_cannot_be_read_is_a_note(facts: Callable[..., Facts]) -> None:
    checks = examine(facts(network=facts().network.__class__(refusal="Operation not permitted")))
    assert the("network", checks).value == "unknown: Operation not permitted"


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2.8", (2, 8)), ("2.8.0a1+cpu", (2, 8)), ("2.15.0+cu132", (2, 15)), ("2.0.100", (2, 0, 100)), ("git", ())],
)
def test_versions_are_compared_by_their_numbers(version: str, expected: tuple[int, ...]) -> None:
    assert numbers(version) == expected


@pytest.mark.parametrize(
    ("one", "other", "same"), [("2.8.0+cpu", "2.8.1", True), ("2.8", "2.80", False), ("3", "3.0.1", True)]
)
def test_major_and_minor_are_what_must_agree(one: str, other: str, *, same: bool) -> None:
    assert same_minor(one, other) is same
