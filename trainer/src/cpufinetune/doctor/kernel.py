"""Reads what the kernel gives from /proc and /sys; what is missing or unreadable is only not known."""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune import cores
from cpufinetune.cores.cgroup import _mounts, _own_groups, _visible_ancestors, read_text
from cpufinetune.cores.cpulist import parse_cpus
from cpufinetune.doctor.facts import Kernel, SharedMemory, Throttling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is examined
ROOT = Path("/")
# Source: arch/x86/include/uapi/asm/prctl.h, asm/fpu/types.h, asm/unistd_64.h of Linux.
SYS_ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18
NANOSECOND, MICROSECOND = 1e-9, 1e-6


def read(root: Path = ROOT) -> Kernel:
    """Read all of it below `root`; anything but "/" is a recorded tree, which has no system calls to ask."""
    description = cores.read(root)
    here = root == ROOT
    cpus = [cpu.id for cpu in description.cpus]
    has_amx = cores.Feature.AMX_BF16 in description.isa
    return Kernel(
        description=description,
        machine=platform.machine(),
        amx_refusal=request_amx() if has_amx and here else None,
        strangers=strangers(root, cpus),
        throttling=throttling(root),
        shared_memory=shared_memory() if here else None,
        huge_pages=huge_pages(read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""),
        clocks=clocks(root, cpus),
    )


def request_amx() -> str:
    """Ask for AMX tiles, as PyTorch's kernels do; return why the kernel refuses, empty if it grants them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, ctypes.c_ulong(XFEATURE_XTILEDATA)) == 0:
        return ""
    return os.strerror(ctypes.get_errno())


def strangers(root: Path, cpus: Iterable[int]) -> frozenset[int]:
    """Return the hardware threads that share a core with ours and are not ours."""
    ours = frozenset(cpus)
    found: set[int] = set()
    for cpu in ours:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        text = read_text(topology / "core_cpus_list") or read_text(topology / "thread_siblings_list") or ""
        try:
            found.update(parse_cpus(text))
        except ValueError:
            continue
    return frozenset(found - ours)


def throttling(root: Path) -> Throttling | None:
    """Return the count of the control group that was held up most, v1 or v2; None where nothing counts."""
    mounts = _mounts(root)
    counts = [
        count
        for controller, path in _own_groups(root)
        for group in _visible_ancestors(mounts, controller, path)
        for count in _throttling(read_text(group / "cpu.stat") or "")
    ]
    return max(counts, key=lambda count: (count.throttled, count.periods), default=None)


def _throttling(text: str) -> Iterator[Throttling]:
    fields = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)  # noqa: PLR2004 - name, value
    numbers = {name: int(value) for name, value in fields.items() if value.isdecimal()}
    if "nr_periods" in numbers and "nr_throttled" in numbers:
        seconds = numbers.get("throttled_time", 0) * NANOSECOND + numbers.get("throttled_usec", 0) * MICROSECOND
        yield Throttling(numbers["nr_periods"], numbers["nr_throttled"], seconds)


def shared_memory(folder: Path = SHARED_MEMORY) -> SharedMemory | None:
    """Measure /dev/shm and write a byte to it, in a file without a name; None if it is not there."""
    try:
        size = os.statvfs(folder)
    except OSError:
        return None
    refusal = ""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        refusal = error.strerror or str(error)
    return SharedMemory(size.f_blocks * size.f_frsize, size.f_bavail * size.f_frsize, refusal)


def huge_pages(text: str) -> str | None:
    """Return the mode in brackets: `always [madvise] never`."""
    return next((word[1:-1] for word in text.split() if word.startswith("[") and word.endswith("]")), None)


def clocks(root: Path, cpus: Iterable[int]) -> frozenset[tuple[str, str]]:
    """Return driver and governor of the clock frequency, each pair once; machines mostly have one."""
    folders = (root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq" for cpu in cpus)
    pairs = ((read_text(folder / "scaling_driver"), read_text(folder / "scaling_governor")) for folder in folders)
    return frozenset((driver or "", governor) for driver, governor in pairs if governor)
