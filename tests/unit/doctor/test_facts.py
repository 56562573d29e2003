from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cpufinetune.comms.ccl import build, locate
from cpufinetune.cores import Feature, read
from cpufinetune.doctor import kernel, network, software
from cpufinetune.doctor.facts import Interface, Throttling, Torch
from cpufinetune.doctor.gather import gather, libraries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CPU = "sys/devices/system/cpu/cpu{}/{}"


def cgroup(mounts: list[str], own: str) -> dict[str, str]:
    lines = [
        f"3{n} 23 0:3{n} / {mount} rw - {kind}" for n, (mount, _, kind) in enumerate(m.partition(" ") for m in mounts)
    ]
    return {"proc/self/mountinfo": "\n".join(lines), "proc/self/cgroup": own}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, None, id="no control groups"),
        pytest.param(
            {
                **cgroup(["/sys/fs/cgroup cgroup2 cgroup2 rw"], "0::/pod"),
                "sys/fs/cgroup/pod/cpu.stat": "usage_usec 7\nnr_periods 100\nnr_throttled 30\nthrottled_usec 2500000",
                "sys/fs/cgroup/cpu.stat": "usage_usec 9",
            },
            Throttling(100, 30, 2.5),
            id="version 2",
        ),
        pytest.param(
            {
                **cgroup(["/sys/fs/cgroup/cpu cgroup cgroup rw,cpu"], "1:cpu:/pod/c"),
                "sys/fs/cgroup/cpu/pod/c/cpu.stat": "nr_periods 50\nnr_throttled 0\nthrottled_time 0",
                "sys/fs/cgroup/cpu/pod/cpu.stat": "nr_periods 40\nnr_throttled 4\nthrottled_time 500000000",
            },
            Throttling(40, 4, 0.5),
            id="version 1, held up by the pod's group",
        ),
        pytest.param(
            {
                **cgroup(["/sys/fs/cgroup cgroup2 cgroup2 rw"], "0::/"),
                "sys/fs/cgroup/cpu.stat": "nr_periods\nx y z\nq -1",
            },
            None,
            id="nonsense",
        ),
    ],
)
def test_throttling_is_read(
    write: Callable[[dict[str, str]], Path], files: dict[str, str], expected: Throttling | None
) -> None:
    assert kernel.throttling(write(files)) == expected


@pytest.mark.parametrize(
    ("siblings", "ours", "expected"),
    [
        pytest.param({0: "0,2", 1: "1,3"}, [0, 1], {2, 3}, id="one thread of each core is ours"),
        pytest.param({0: "0,2", 2: "0,2"}, [0, 2], set(), id="both are"),
        pytest.param({0: "?"}, [0], set(), id="malformed"),
        pytest.param({}, [0], set(), id="unknown"),
    ],
)
def test_threads_of_others_on_our_cores_are_found(
    write: Callable[[dict[str, str]], Path], siblings: dict[int, str], ours: list[int], expected: set[int]
) -> None:
    files = {CPU.format(cpu, "topology/thread_siblings_list"): text for cpu, text in siblings.items()}
    assert kernel.strangers(write(files), ours) == expected


def test_clocks_are_read_once_each(write: Callable[[dict[str, str]], Path]) -> None:
    files = {CPU.format(cpu, "cpufreq/scaling_governor"): "performance" for cpu in (0, 1)}
    root = write({**files, CPU.format(0, "cpufreq/scaling_driver"): "intel_pstate"})
    assert kernel.clocks(root, [0, 1, 2]) == {("intel_pstate", "performance"), ("", "performance")}


@pytest.mark.parametrize(
    ("text", "mode"), [("always [madvise] never", "madvise"), ("[always] madvise never", "always"), ("", None)]
)
def test_the_mode_of_huge_pages_is_the_word_in_brackets(text: str, mode: str | None) -> None:
    assert kernel.huge_pages(text) == mode


def test_shared_memory_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    found = kernel.shared_memory(tmp_path)
    assert found is not None
    assert found.size >= found.free > 0
    assert found.refusal == ""
    assert list(tmp_path.iterdir()) == []
    assert kernel.shared_memory(tmp_path / "missing") is None


def test_shared_memory_that_refuses_files_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = kernel.shared_memory(tmp_path / "file")
    assert found is not None
    assert found.refusal == "Not a directory"


def test_a_cpu_without_amx_is_refused_its_tiles_with_a_reason() -> None:
    assert Feature.AMX_BF16 in read().isa or kernel.request_amx()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n",
            Torch("2.15.0+cu132", "CUDA 13.2"),
            id="CUDA",
        ),
        pytest.param("__version__ = '2.9.1+cpu'\ncuda: Optional[str] = None\n", Torch("2.9.1+cpu"), id="CPU"),
        pytest.param(
            "__version__ = '2.7'\ncuda = None\nhip = '6.3'\n", Torch("2.7", "ROCm 6.3"), id="ROCm, older form"
        ),
        pytest.param("", Torch("2.9.1"), id="nothing to read"),
    ],
)
def test_the_build_of_torch_is_read_from_its_version_file(text: str, expected: Torch) -> None:
    assert software.parse_torch(text, "2.9.1", ()) == expected


def test_requirements_are_those_of_the_extra() -> None:
    lines = [
        "pyyaml>=6.0",
        'torch>=2.8; extra == "trainer"',
        "kopf>=1.45; extra == 'operator'",
        "types-pyyaml",
        "old>=1; python_version < '3'",
    ]
    assert software.parse_requirements(lines, "trainer") == {"pyyaml": "6.0", "torch": "2.8"}


def test_a_broken_ccl_root_is_told_with_its_cure(tmp_path: Path) -> None:
    found = software.ccl({"CCL_ROOT": str(tmp_path / "nowhere")})
    assert (found.version, found.built) == ("", False)
    assert "nowhere" in found.refusal
    assert "CCL_ROOT" in found.cure


def test_a_compiler_that_is_named_comes_first() -> None:
    assert software.ccl({"CXX": sys.executable}).compiler == sys.executable
    assert software.ccl({"CXX": "no-such-compiler"}) == replace(software.ccl({}), compiler="", asked="no-such-compiler")


def test_variables_that_fit_another_machine_are_told_with_their_cure() -> None:
    found = software.ccl({"FI_TCP_IFACE": "nope0"})
    assert found.version
    assert found.misfit == "FI_TCP_IFACE is nope0, which does not exist here"
    assert found.misfit_cure.startswith("use ")
    assert not software.ccl({"FI_TCP_IFACE": "lo"}).misfit


def test_a_backend_that_came_along_needs_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / build.key(locate.find()) / f"{build.MODULE}.so"
    path.parent.mkdir()
    path.touch()
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "nowhere")
    found = software.ccl({})
    assert (found.built, found.refusal, found.unwritable) == (True, "", "")


def test_a_place_for_the_backend_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not made yet"))
    assert not software.ccl({}).unwritable
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert software.ccl({}).unwritable.startswith(str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"mtu": "1450", "speed": "25000"}, (1450, 25000)),
        ({"mtu": "1450", "speed": "-1"}, (1450, None)),
        ({"mtu": "1450", "speed": "0"}, (1450, None)),
        ({}, (None, None)),
    ],
)
def test_links_tell_what_they_know(
    write: Callable[[dict[str, str]], Path], files: dict[str, str], expected: tuple[int | None, int | None]
) -> None:
    assert network.link(write(files)) == expected


def test_a_network_without_a_way_out_is_one_too() -> None:
    lo, eth = Interface("lo", ()), Interface("eth0", ())
    assert network.first_outward((lo, eth)) == "eth0"
    assert network.first_outward((lo,)) is None


def test_mapped_libraries_are_named_by_their_files() -> None:
    maps = """
7f00-7f01 r-xp 00000000 fe:00 42  /usr/lib/x86_64-linux-gnu/libtcmalloc.so.4.5.9
7f01-7f02 rw-p 00001000 fe:00 42  /usr/lib/x86_64-linux-gnu/libtcmalloc.so.4.5.9
7f02-7f03 rw-p 00000000 00:00 0
7f03-7f04 r-xp 00000000 00:00 0  [vdso]
7f04-7f05 r--p 00000000 fe:00 43  /usr/bin/python3.11
"""
    assert libraries(maps) == {"libtcmalloc.so.4.5.9"}


def test_this_machine_can_be_read_without_importing_torch() -> None:
    before = set(sys.modules)
    facts = gather({})
    assert not {"torch", "transformers"} & (set(sys.modules) - before)
    assert {cpu.id for cpu in facts.kernel.description.cpus} == set(os.sched_getaffinity(0))
    assert facts.software.torch is not None
    assert {one.name for one in facts.software.requirements} >= {"torch", "transformers", "peft", "pyyaml"}
    assert {one.name for one in facts.network.interfaces} <= {name for _, name in socket.if_nameindex()}
