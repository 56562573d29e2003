"""Memory: how much, how ranks share it, in which pages; and the clock, a setting of the machine like these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.doctor.check import note, ok, problem
from cpufinetune.doctor.checks.layout import rank_count

if TYPE_CHECKING:
    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.facts import Facts, Kernel

MIB, GIB = 1 << 20, 1 << 30
# PyTorch and transformers, imported, before there is a model.
IMPORTED = 768 * MIB
# A small encoder with its optimizer and activations.
SMALL_RANK = 2 * GIB
# What containers get where nobody says how large /dev/shm should be.
DEFAULT_SHARED = 64 * MIB
# The segment by which the ranks of a node add gradients up: comms/ccl/csrc/shared.cpp.
SHARED_BLOCKS, SHARED_A_RANK = 12 * MIB, MIB // 2
SIZE_SHARED = "mount an emptyDir of medium Memory at /dev/shm (the operator does: `spec.node.sharedMemory`)"
SLOW_GOVERNORS = {"powersave", "conservative", "userspace"}
# Under these, powersave lets the processor choose its clock by load, which it does well.
ACTIVE_DRIVERS = {"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"}


def examine(facts: Facts) -> list[Check]:
    """Judge memory and clock."""
    ranks = rank_count(facts)
    return [_memory(facts.kernel, ranks), _shared(facts, ranks), _huge_pages(facts.kernel), _clock(facts.kernel)]


def shared_need(ranks: int) -> int:
    """Return the bytes of /dev/shm that `ranks` ranks of a node need, flags rounded up."""
    return SHARED_BLOCKS + ranks * SHARED_A_RANK + MIB


def _memory(kernel: Kernel, ranks: int) -> Check:
    limit = kernel.description.memory_limit
    if limit is None:
        return ok("memory", "unknown")
    value = f"{limit / GIB:.1f} GiB"
    if limit < IMPORTED:
        cost = "PyTorch and transformers alone need more: the kernel kills the process"
        return problem("memory", value, cost, "raise resources.limits.memory, or `spec.node.memory`")
    if limit < ranks * SMALL_RANK:
        cost = f"{limit / ranks / GIB:.1f} GiB a rank: enough for small models and short texts only"
        return note("memory", value, cost, "see what a job needs with `cpufinetune plan`; raise `spec.node.memory`")
    return ok("memory", value)


def _shared(facts: Facts, ranks: int) -> Check:
    name, shared, several = "shared memory", facts.kernel.shared_memory, max(ranks, 2)
    if shared is None or shared.refusal:
        value = "no /dev/shm" if shared is None else f"cannot write to /dev/shm: {shared.refusal}"
        return note(name, value, f"gradients of {several} ranks on a node go over TCP instead", SIZE_SHARED)
    value = f"{_bytes(shared.size)} in /dev/shm, {_bytes(shared.free)} free"
    wanted = shared_need(several)
    if shared.free < wanted:
        cost = f"{several} ranks on a node need {_bytes(wanted)}; gradients go over TCP instead"
        return note(name, value, cost, SIZE_SHARED)
    if shared.size <= DEFAULT_SHARED:
        cost = f"a container's default: {several} ranks take {_bytes(wanted)}; what shares more ends with a bus error"
        return note(name, value, cost, SIZE_SHARED)
    return ok(name, value)


def _bytes(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"


def _huge_pages(kernel: Kernel) -> Check:
    name, mode = "huge pages", kernel.huge_pages
    if mode == "never":
        cost = "every 4 KiB of the heap are a page fault and an entry of their own in the page tables"
        return note(name, mode, cost, "on the machine: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
    return ok(name, mode or "unknown")


def _clock(kernel: Kernel) -> Check:
    clocks = sorted(kernel.clocks)
    if not clocks:
        return ok("clock", "no governor to be seen")
    value = ", ".join(f"{governor} ({driver or 'unknown driver'})" for driver, governor in clocks)
    if any(governor in SLOW_GOVERNORS and driver not in ACTIVE_DRIVERS for driver, governor in clocks):
        cost = "the clock stays low however much there is to compute: up to half the speed"
        return note("clock", value, cost, "on the machine: cpupower frequency-set -g performance")
    return ok("clock", value)
