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
    if ccl.misfit:
        return note(name, f"{value}, but {ccl.misfit}", GLOO, ccl.misfit_cure)
    if ccl.refusal:
        cure = ccl.cure or "set XDG_CACHE_HOME to a folder of yours"
        return note(name, f"{value}, backend unknown: {ccl.refusal}", GLOO, cure)
    if ccl.built:
        return ok(name, f"{value}, backend compiled")
    value += ", backend not compiled"
    if lack := _lack(ccl):
        what, cure = lack
        return note(name, f"{value}, {what}", GLOO, cure)
    cost = "the first job over oneCCL compiles it"
    return note(name, f"{value}; {ccl.compiler} can", cost, "nothing to do; or compile it ahead")


def _lack(ccl: Ccl) -> tuple[str, str] | None:
    """Return what is missing to compile the backend, and the cure."""
    if not ccl.headers:
        return "without headers to do it", "install the headers of oneCCL: pip install oneccl-cpu-devel"
    if not ccl.compiler:
        return f"no {ccl.asked} to do it", "unset CXX, or install g++, or use an image in which it is compiled"
    if ccl.unwritable:
        return f"cannot be kept in {ccl.unwritable}", "point XDG_CACHE_HOME at a folder that can be written"
    return None


def _bindings(software: Software) -> Check:
    name, torch = "oneCCL bindings", software.torch
    if software.bindings is None:
        return ok(name, "Intel's are not installed, nor needed")
    if torch is not None and not same_minor(software.bindings, torch.version):
        value = f"Intel's {software.bindings}, beside torch {torch.version}"
        cost = "they are compiled for another PyTorch and do not load; cpufinetune does not use them"
        return note(name, value, cost, "pip uninstall oneccl_bind_pt")
    return ok(name, f"Intel's {software.bindings}")
