"""Libraries by which ranks talk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.doctor.check import note, ok
from cpufinetune.doctor.checks.software import same_minor

if TYPE_CHECKING:
    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.facts import Ccl, Facts, Software

GLOO = "`backend: Auto` takes gloo, `backend: CCL` fails"


def examine(facts: Facts) -> list[Check]:
    """Judge the libraries of the collectives."""
    return [_oneccl(facts.ccl), _bindings(facts.software)]


def _oneccl(ccl: Ccl) -> Check:
    name = "oneCCL"
    if not ccl.version:
        return note(name, ccl.refusal, GLOO, ccl.cure or "correct or unset CCL_ROOT and ONEAPI_ROOT")
    value = f"{ccl.version} ({ccl.source})"
    if ccl.refusal:
        return note(name, f"{value}, backend unknown: {ccl.refusal}", GLOO, "set XDG_CACHE_HOME to a folder of yours")
    if ccl.built:
        return ok(name, f"{value}, backend compiled")
    if not ccl.headers:
        value += ", backend not compiled, without headers to do it"
        return note(name, value, GLOO, "install the headers of oneCCL: pip install oneccl-cpu-devel")
    if not ccl.compiler:
        value += ", backend not compiled, no C++ compiler"
        return note(name, value, GLOO, "use an image in which it is compiled, or install g++")
    cost = "the first job over oneCCL compiles it"
    return note(name, f"{value}, backend not compiled; {ccl.compiler} can", cost, "nothing to do; or compile it ahead")


def _bindings(software: Software) -> Check:
    name, torch = "oneCCL bindings", software.torch
    if software.bindings is None:
        return ok(name, "Intel's are not installed, nor needed")
    if torch is not None and not same_minor(software.bindings, torch.version):
        value = f"Intel's {software.bindings}, beside torch {torch.version}"
        cost = "they are compiled for another PyTorch and do not load; cpufinetune does not use them"
        return note(name, value, cost, "pip uninstall oneccl_bind_pt")
    return ok(name, f"Intel's {software.bindings}")
