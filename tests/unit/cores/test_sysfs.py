from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.cores import Cpu, Feature, read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GIB = 1 << 30


def topology(
    cpulists: Sequence[str] = ("0-1", "2-3"),
    *,
    cores: Sequence[str] = ("0", "1", "2", "3"),
    online: str = "0-3",
    flags: str = "avx2 avx512f",
) -> dict[str, str]:
    """Files of a machine: `cpulists` by NUMA node, `cores` as cpulists of siblings."""
    files = {f"{CPU}/online": online, "proc/meminfo": "MemTotal: 67108864 kB\nMemFree: 1 kB"}
    files |= {f"{NODE}/node{node}/cpulist": cpulist for node, cpulist in enumerate(cpulists)}
    ids = {cpu: siblings for siblings in cores for cpu in siblings.split(",")}
    for cpu, siblings in ids.items():
        files |= {f"{CPU}/cpu{cpu}/topology/thread_siblings_list": siblings}
        files |= {f"{CPU}/cpu{cpu}/topology/physical_package_id": "0"}
    blocks = [f"processor\t: {cpu}\nmodel name\t: Xeon 8480+\nflags\t\t: fpu {flags}\n" for cpu in sorted(ids)]
    return files | {"proc/cpuinfo": "\n".join(blocks)}


def test_topology_is_read(write: Callable[[dict[str, str]], Path]) -> None:
    description = read(write(topology(["0,2", "1,3"], cores=["0,2", "1,3"])))
    assert description.cpus == (Cpu(0, 0, 0, 0), Cpu(1, 1, 0, 1), Cpu(2, 0, 0, 0), Cpu(3, 1, 0, 1))
    assert (description.model_name, description.memory_limit) == ("Xeon 8480+", 64 * GIB)
    assert description.quota is None


@pytest.mark.parametrize(
    ("changes", "allowed", "ids"),
    [
        pytest.param({}, None, [0, 1, 2, 3], id="all online CPUs of a recorded tree"),
        pytest.param({}, [1, 3], [1, 3], id="the mask given"),
        pytest.param({"online": "0,2-3"}, [0, 1, 2], [0, 2], id="offline CPUs are not allowed"),
        pytest.param({"online": "0-1,3"}, None, [0, 1, 3], id="ids need not be contiguous"),
        pytest.param({"cpulists": ["0-3", ""]}, None, [0, 1, 2, 3], id="a memory-only NUMA node adds none"),
    ],
)
def test_allowed_cpus_are_mask_and_online(
    write: Callable[[dict[str, str]], Path], changes: dict[str, Any], allowed: list[int] | None, ids: list[int]
) -> None:
    assert [cpu.id for cpu in read(write(topology(**changes)), allowed).cpus] == ids


def test_without_topology_each_cpu_is_a_core_of_node_0(write: Callable[[dict[str, str]], Path]) -> None:
    description = read(write({"proc/version": "Linux"}), allowed=[5, 4])
    assert description.cpus == (Cpu(4, 4, 0, 0), Cpu(5, 5, 0, 0))
    assert (description.model_name, description.memory_limit) == ("unknown", None)
    assert not description.isa.features


def test_malformed_files_are_as_good_as_missing(write: Callable[[dict[str, str]], Path]) -> None:
    files = topology() | {f"{CPU}/cpu1/topology/thread_siblings_list": "?", f"{NODE}/node1/cpulist": "2-"}
    files |= {"proc/meminfo": "MemTotal:", "proc/self/cgroup": "nonsense", "sys/fs/cgroup/cpu.max": "max"}
    assert read(write(files)).cpus == tuple(Cpu(cpu, cpu, 0, 0) for cpu in range(4))


@pytest.mark.parametrize(
    ("flags", "features", "bf16"),
    [
        ("sse4_2", set(), False),
        ("avx2 avx_vnni", {Feature.AVX2, Feature.VNNI}, False),
        ("avx512f avx512_vnni", {Feature.AVX512F, Feature.VNNI}, False),
        ("avx512_bf16", {Feature.AVX512_BF16}, True),
        ("amx_bf16 amx_tile amx_int8", {Feature.AMX_BF16, Feature.AMX_INT8}, True),
        ("amx_bf16 amx_int8", set(), False),
        ("amx_tile amx_int8", set(), False),
    ],
)
def test_isa_comes_from_the_flags(
    write: Callable[[dict[str, str]], Path], flags: str, features: set[Feature], *, bf16: bool
) -> None:
    isa = read(write(topology(flags=flags))).isa
    assert isa.features == features
    assert isa.native_bf16 == bf16


def test_isa_is_what_all_allowed_cpus_have(write: Callable[[dict[str, str]], Path]) -> None:
    blocks = ["processor: 0\nflags: avx2 avx512f\n", "processor: 1\nflags: avx2\n"]
    root = write(topology(cores=["0", "1"], online="0-1") | {"proc/cpuinfo": "\n".join(blocks)})
    assert read(root).isa.features == {Feature.AVX2}
    assert Feature.AVX512F in read(root, allowed=[0]).isa


V1 = "9:memory:/pod/box\n8:cpuset:/pod/box\n2:cpu,cpuacct:/pod/box\n1:name=systemd:/x\n"
V1_MOUNTS = "\n".join(
    f"3{i} 31 0:{i} {{root}} /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}"
    for i, name in enumerate(("cpu,cpuacct", "memory", "cpuset", "name=systemd"))
)
V2_MOUNT = "31 23 0:28 {root} /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate"
UNIFIED = "38 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"


def v1(folder: str = "", *, quota: int = -1, memory: int = 9223372036854771712, cpuset: str = "0-3") -> dict[str, str]:
    return {
        f"sys/fs/cgroup/cpu,cpuacct{folder}/cpu.cfs_quota_us": str(quota),
        f"sys/fs/cgroup/cpu,cpuacct{folder}/cpu.cfs_period_us": "100000",
        f"sys/fs/cgroup/memory{folder}/memory.limit_in_bytes": str(memory),
        f"sys/fs/cgroup/cpuset{folder}/cpuset.effective_cpus": cpuset,
    }


def v2(folder: str = "", *, cpu: str = "max 100000", memory: str = "max", cpuset: str = "0-3") -> dict[str, str]:
    base = f"sys/fs/cgroup{folder}"
    return {f"{base}/cpu.max": cpu, f"{base}/memory.max": memory, f"{base}/cpuset.cpus.effective": cpuset}


def proc(cgroup: str, mounts: str | None = None) -> dict[str, str]:
    return {"proc/self/cgroup": cgroup} | ({} if mounts is None else {"proc/self/mountinfo": mounts})


# name: files, quota in CPUs, memory in GiB, CPU ids
LIMITS: dict[str, tuple[dict[str, str], float | None, int, list[int]]] = {
    "no cgroup files": ({}, None, 64, [0, 1, 2, 3]),
    "v2, own group at the root of the mount": (
        proc("0::/") | v2(cpu="250000 100000", memory=str(8 * GIB), cpuset="1-2"), 2.5, 8, [1, 2],
    ),
    "v2 without limits": (proc("0::/", V2_MOUNT.format(root="/")) | v2(), None, 64, [0, 1, 2, 3]),
    "v2 without /proc/self/cgroup": (v2(cpu="50000 100000"), 0.5, 64, [0, 1, 2, 3]),
    "v2, limits on a parent": (
        proc("0::/pod/box", V2_MOUNT.format(root="/"))
        | v2("/pod/box", cpu="400000 100000") | v2("/pod", cpu="300000 100000", memory=str(4 * GIB)),
        3.0, 4, [0, 1, 2, 3],
    ),
    "v2, a sibling group is not ours": (
        proc("0::/pod/box", V2_MOUNT.format(root="/")) | v2("/pod/box") | v2("/pod/other", cpu="1000 100000"),
        None, 64, [0, 1, 2, 3],
    ),
    "v2, the host's path at the root of the container's mount": (
        proc("0::/pod/box", V2_MOUNT.format(root="/pod/box")) | v2(cpu="200000 100000"), 2.0, 64, [0, 1, 2, 3],
    ),
    "v2, a group below the container's own": (
        proc("0::/pod/box/job", V2_MOUNT.format(root="/pod/box"))
        | v2(cpu="200000 100000") | v2("/job", memory=str(GIB)), 2.0, 1, [0, 1, 2, 3],
    ),
    "v2, a group outside the namespace": (
        proc("0::/../other", V2_MOUNT.format(root="/")) | v2(cpu="200000 100000"), 2.0, 64, [0, 1, 2, 3],
    ),
    "v1, visible path": (
        proc(V1, V1_MOUNTS.format(root="/"))
        | v1() | v1("/pod", memory=2 * GIB) | v1("/pod/box", quota=150000, cpuset="3"),
        1.5, 2, [3],
    ),
    "v1, path of the host, own group at the root of the mount": (
        proc(V1) | v1(quota=400000, memory=16 * GIB), 4.0, 16, [0, 1, 2, 3],
    ),
    "v1, container's mount with the host's root": (
        proc(V1, V1_MOUNTS.format(root="/pod/box")) | v1(quota=400000), 4.0, 64, [0, 1, 2, 3],
    ),
    "hybrid, controllers on v1 and an empty unified hierarchy": (
        proc(V1 + "0::/pod/box", V1_MOUNTS.format(root="/") + "\n" + UNIFIED)
        | {"sys/fs/cgroup/unified/pod/box/cgroup.procs": ""} | v1("/pod/box", quota=300000), 3.0, 64, [0, 1, 2, 3],
    ),
    "hybrid without mountinfo": (
        proc(V1 + "0::/") | {"sys/fs/cgroup/unified/cgroup.procs": ""} | v1("/pod/box", quota=300000),
        3.0, 64, [0, 1, 2, 3],
    ),
    "a limit above the memory present": (proc("0::/") | v2(memory=str(640 * GIB)), None, 64, [0, 1, 2, 3]),
    "a cpuset of other CPUs is another container's": (proc("0::/") | v2(cpuset="8-9"), None, 64, [0, 1, 2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITS.values(), ids=LIMITS)
def test_limits_of_control_groups(
    write: Callable[[dict[str, str]], Path], case: tuple[dict[str, str], float | None, int, list[int]]
) -> None:
    files, quota, memory, ids = case
    description = read(write(topology() | files))
    assert description.quota == quota
    assert description.memory_limit == memory * GIB
    assert [cpu.id for cpu in description.cpus] == ids


def test_this_machine_allows_exactly_the_affinity_mask() -> None:
    description = read()
    assert {cpu.id for cpu in description.cpus} == os.sched_getaffinity(0)
    assert description.memory_limit is not None
    assert description.quota is None or description.quota > 0


def test_a_narrower_mask_of_this_process_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert [cpu.id for cpu in read().cpus] == [min(before)]
    finally:
        os.sched_setaffinity(0, before)
