"""What came of trying PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpufinetune.doctor.check import note, ok, problem
from cpufinetune.doctor.checks.collectives import GLOO
from cpufinetune.doctor.checks.layout import plural

if TYPE_CHECKING:
    from cpufinetune.cores import Isa
    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.deep import Probed

REQUIRED = ("torch", "fp32", "bf16")
REINSTALL = "install PyTorch anew, for this CPU and this Python"
REBUILD = "remove `cpufinetune/ccl` from ~/.cache, or from XDG_CACHE_HOME: the backend is compiled anew"
UNINSTALL = "uninstall it, or install the version that fits torch"


def examine(probed: Probed, isa: Isa, threads: int) -> list[Check]:
    """Judge the findings; `threads` is what the layout gives a rank."""
    found = probed.findings
    checks = [_failed(name, finding) for name, finding in found.items() if "error" in finding]
    if "seconds" in found.get("torch", {}):
        checks.append(_torch(found["torch"], threads))
    if "gflops" in found.get("fp32", {}):
        checks.append(ok("trial: fp32", f"{found['fp32']['gflops']:.0f} GFLOP/s on {plural(threads, 'thread')}"))
        if "gflops" in found.get("bf16", {}):
            checks.append(_bf16(found["bf16"]["gflops"], found["fp32"]["gflops"], native=isa.native_bf16))
    if "built" in found.get("oneCCL", {}):
        checks.append(ok("trial: oneCCL", "the backend loads" if found["oneCCL"]["built"] else "no backend to load"))
    checks += [ok(f"trial: {name}", "can be imported") for name, one in found.items() if set(one) == {"version"}]
    return checks + ([_died(probed)] if probed.death else [])


def _failed(name: str, finding: dict[str, Any]) -> Check:
    if name in REQUIRED:
        return problem(f"trial: {name}", finding["error"], "nothing can be trained", REINSTALL)
    if name == "oneCCL":
        return note(f"trial: {name}", finding["error"], GLOO, finding.get("cure") or REBUILD)
    return note(f"trial: {name}", finding["error"], "whatever imports it fails; cpufinetune does not", UNINSTALL)


def _died(probed: Probed) -> Check:
    name, value = f"trial: {probed.during or 'end'}", f"the process ended: {probed.death}"
    if probed.during in REQUIRED or not probed.findings:
        return problem(name, value, "nothing can be trained", REINSTALL)
    if probed.during == "oneCCL":
        return problem(name, value, "ranks that load the backend end likewise", REBUILD)
    return problem(name, value, "whatever imports it ends likewise", UNINSTALL)


def _torch(finding: dict[str, Any], threads: int) -> Check:
    value = f"{finding['version']}, imported in {finding['seconds']:.1f} s, {plural(finding['threads'], 'thread')}"
    if finding["threads"] != threads:
        cost = f"the layout gives a rank {plural(threads, 'thread')}, and PyTorch takes another number"
        return note("trial: torch", value, cost, "unset what changes OpenMP's number of threads")
    return ok("trial: torch", value)


def _bf16(bf16: float, fp32: float, *, native: bool) -> Check:
    value = f"{bf16:.0f} GFLOP/s, {bf16 / fp32:.1f} times fp32"
    if native and bf16 < fp32:
        cost = "the CPU is said to multiply bf16, and is slower at it than in fp32: training chooses the slower one"
        return note("trial: bf16", value, cost, "set `training.precision: Float32`; a newer PyTorch may do better")
    return ok("trial: bf16", value if native else f"{value}; training computes in fp32")
