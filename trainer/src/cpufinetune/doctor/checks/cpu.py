"""Processor: what it can do, and how much of it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.cores import Feature, describe, format_cpus
from cpufinetune.cores.partition import by_node, within_quota
from cpufinetune.doctor.check import note, ok, problem
from cpufinetune.doctor.checks.layout import layout_of, plural

if TYPE_CHECKING:
    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.facts import Facts, Kernel

# Now and then every process waits; more than this share of all periods is felt.
SELDOM_THROTTLED = 0.01
CHOOSE = "choose machines in the document: `placement: {features: [%s]}`"
STATIC = "give the pod whole CPUs, requests equal to limits, on a kubelet with `cpuManagerPolicy: static`"


def examine(facts: Facts) -> list[Check]:
    """Judge the processor."""
    kernel = facts.kernel
    return [
        ok("CPU", kernel.description.model_name),
        _instruction_sets(kernel),
        _amx(kernel),
        _cores(kernel),
        _smt(kernel),
        _numa(kernel),
        _quota(kernel),
        _throttling(kernel),
        _ranks(facts),
    ]


def _instruction_sets(kernel: Kernel) -> Check:
    name, isa = "instruction sets", kernel.description.isa
    if kernel.machine != "x86_64":
        return note(name, kernel.machine, "only x86 CPUs are known here: training computes in fp32", "use an x86 CPU")
    if Feature.AVX2 not in isa:
        return note(name, str(isa), "without AVX2 training is several times slower", CHOOSE % "AVX2")
    if Feature.AVX512F not in isa:
        cost = "without AVX512 and bf16, training computes in fp32 with vectors of half the width"
        return note(name, str(isa), cost, CHOOSE % "AVX512F")
    if not isa.native_bf16:
        cost = "training computes in fp32; bf16 products have 2 times the peak with AVX512_BF16, 16 times with AMX"
        return note(name, str(isa), cost, CHOOSE % "AVX512BF16")
    return ok(name, str(isa))


def _amx(kernel: Kernel) -> Check:
    if kernel.amx_refusal is None:
        return ok("AMX tiles", "this CPU has none")
    if kernel.amx_refusal:
        value = f"the kernel does not grant them: {kernel.amx_refusal}"
        cost = "the CPU's AMX lies idle: bf16 products are left with an eighth of its peak"
        return note("AMX tiles", value, cost, "use Linux 5.16 or newer, and a seccomp profile that allows arch_prctl")
    return ok("AMX tiles", "granted by the kernel")


def _cores(kernel: Kernel) -> Check:
    description = kernel.description
    count = len(description.cores)
    if not count:
        return problem("cores", "none", "nothing can run", "correct affinity mask and cpuset: they have no online CPU")
    return ok("cores", f"{plural(count, 'core')}: CPUs {format_cpus(cpu.id for cpu in description.cpus)}")


def _smt(kernel: Kernel) -> Check:
    if kernel.strangers:
        value = f"threads {format_cpus(kernel.strangers)} of the same cores are not ours"
        cost = "whatever runs on them shares the vector units: up to half the speed"
        cure = "set the kubelet's `cpuManagerPolicyOptions: {full-pcpus-only: 'true'}`; with taskset, name both threads"
        return note("SMT", value, cost, cure)
    most = max((len(core.cpus) for core in kernel.description.cores), default=0)
    return ok("SMT", f"{most} threads a core, of which one computes" if most > 1 else "one thread a core")


def _numa(kernel: Kernel) -> Check:
    nodes = by_node(kernel.description.cores)
    parts = ", ".join(f"node {node}: {plural(len(cores), 'core')}" for node, cores in nodes.items())
    return ok("NUMA", parts or "unknown")


def _quota(kernel: Kernel) -> Check:
    name, quota, count = "CPU quota", kernel.description.quota, len(kernel.description.cores)
    if quota is None:
        return ok(name, "none")
    value = f"{quota:g} CPUs"
    if quota < 1:
        cost = "less than one CPU: the kernel stops every thread in each period"
        return problem(name, value, cost, "raise resources.limits.cpu, or `spec.node.cpu`, to a whole number")
    if quota < count:
        cost = f"{int(quota)} of {plural(count, 'core')} compute, and other containers may run on those, too"
        return note(name, value, cost, STATIC)
    return ok(name, value)


def _throttling(kernel: Kernel) -> Check:
    name, count = "throttling", kernel.throttling
    if count is None or not count.periods:
        return ok(name, "none")
    value = f"in {count.throttled} of {plural(count.periods, 'period')}, {count.seconds:.1f} s in all"
    if count.throttled <= SELDOM_THROTTLED * count.periods:
        return ok(name, value)
    share = count.throttled / count.periods
    cost = f"in {share:.0%} of the time slices this container was stopped, and all ranks wait for the one that is"
    return note(name, value, cost, "run no more threads than the quota has CPUs; " + STATIC)


def _ranks(facts: Facts) -> Check:
    layout = layout_of(facts)
    if layout is None:
        return problem("ranks", "none", "there is no core, or fewer than one rank was asked for", "see cores; --ranks")
    value = "; ".join(describe(layout))
    if not layout.pinned:
        cost = "ranks share cores: as slow as one rank for each core, with more to communicate"
        return note("ranks", value, cost, "run at most one rank a core: `spec.node.ranks`")
    cores = within_quota(facts.kernel.description)
    busy = {cpu for rank in layout.ranks for cpu in rank.cpus}
    idle = [core.cpu for core in cores if core.cpu not in busy]
    if idle:
        cost = f"idle: cores {format_cpus(idle)}; all ranks are of one size, and each within its NUMA node"
        return note("ranks", value, cost, "choose `spec.node.ranks` or the cpuset so that cores divide evenly")
    return ok("ranks", value)
