"""Installed packages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cpufinetune.doctor.check import note, ok, problem

if TYPE_CHECKING:
    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.facts import Facts, Requirement, Software, Torch

INSTALL = "pip install 'cpufinetune[trainer]'"
OWN_LINE = ("torch", "transformers")


def examine(facts: Facts) -> list[Check]:
    """Judge what is installed."""
    software = facts.software
    needed = {requirement.name: requirement for requirement in software.requirements}
    others = [requirement for name, requirement in needed.items() if name not in OWN_LINE]
    return [
        _torch(software.torch, needed.get("torch")),
        _transformers(needed.get("transformers")),
        _packages(others),
        _ipex(software),
    ]


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, for example (2, 8) of `2.8.0a1+cpu`; zeros at the end do not count."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in release[0].split(".")] if release else []
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def same_minor(one: str, other: str) -> bool:
    """Tell whether two versions agree in major and minor number."""
    return [*numbers(one), 0, 0][:2] == [*numbers(other), 0, 0][:2]


def _lacks(requirement: Requirement) -> bool:
    return requirement.found is None or numbers(requirement.found) < numbers(requirement.lowest)


def _torch(torch: Torch | None, needed: Requirement | None) -> Check:
    lowest = needed.lowest if needed else ""
    if torch is None:
        return problem("torch", "not installed", "nothing can be trained", INSTALL)
    if numbers(torch.version) < numbers(lowest):
        return problem("torch", torch.version, f"older than {lowest}: training will fail", f"{INSTALL} --upgrade")
    if torch.accelerator:
        cost = "libraries that a CPU never uses: some 4 GB of disk, and of every image"
        cure = "install PyTorch's CPU build: `TORCH_INDEX=cpu` of `make env` and of the image"
        return note("torch", f"{torch.version}, built for {torch.accelerator}", cost, cure)
    return ok("torch", torch.version)


def _transformers(needed: Requirement | None) -> Check:
    if needed is None:
        return ok("transformers", "unknown")
    if _lacks(needed):
        value = needed.found or "not installed"
        return problem("transformers", value, f"training needs {needed.lowest} or newer", f"{INSTALL} --upgrade")
    return ok("transformers", needed.found or "")


def _packages(needed: list[Requirement]) -> Check:
    lacking = [f"{one.name} {one.found or 'is missing'}, needs {one.lowest}" for one in needed if _lacks(one)]
    if lacking:
        return problem("other packages", "; ".join(lacking), "training will fail", f"{INSTALL} --upgrade")
    return ok("other packages", f"all {len(needed)} that training needs")


def _ipex(software: Software) -> Check:
    if software.ipex is None:
        return ok("IPEX", "not installed, nor needed")
    if software.torch is not None and not same_minor(software.ipex, software.torch.version):
        value = f"{software.ipex}, beside torch {software.torch.version}"
        cost = "importing it fails or ends the process, also in libraries that only look whether it is there"
        return problem("IPEX", value, cost, "pip uninstall intel-extension-for-pytorch, or install torch's major.minor")
    return ok("IPEX", software.ipex)
