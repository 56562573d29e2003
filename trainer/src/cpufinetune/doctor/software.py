"""Reads which packages are installed, without importing one of them: PyTorch alone takes seconds."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.comms.ccl import build, locate, surroundings
from cpufinetune.comms.ccl.locate import CclError
from cpufinetune.comms.choice import binding_version
from cpufinetune.cores.cgroup import read_text
from cpufinetune.doctor.facts import Ccl, Requirement, Software, Torch
from cpufinetune.errors import CpuFineTuneError
from cpufinetune.train import extension

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TRAINER = "trainer"
ACCELERATORS = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}
OPENMP = ("libgomp*.so*", "libiomp5*.so*", "libomp*.so*")
NEEDED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*>=\s*(?P<lowest>[0-9.]+)")
EXTRA = re.compile(r"extra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def read() -> Software:
    """Read what is installed beside this package."""
    needed = parse_requirements(metadata.requires("cpufinetune") or (), TRAINER)
    return Software(
        torch=_torch(),
        requirements=tuple(Requirement(name, lowest, version(name)) for name, lowest in needed.items()),
        ipex=version(extension.PACKAGE),
        bindings=binding_version(),
    )


def version(name: str) -> str | None:
    """Return the version of a package, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def parse_requirements(lines: Iterable[str], extra: str) -> dict[str, str]:
    """Return the lowest version by package, of what is needed always and of what is needed for `extra`."""
    needed = {}
    for line in lines:
        found = NEEDED.match(line)
        marker = EXTRA.search(line)
        # Other markers, such as those for another Python, would need a parser of their own; this project has none.
        if found and (marker["extra"] == extra if marker else ";" not in line):
            needed[found["name"]] = found["lowest"]
    return needed


def _torch() -> Torch | None:
    """Find PyTorch where Python would, which need not be where its package says."""
    spec = util.find_spec("torch")
    # A folder called `torch` without a package in it is found, too, and has no origin.
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    names = sorted(path.name for pattern in OPENMP for path in (folder / "lib").glob(pattern))
    return parse_torch(read_text(folder / "version.py") or "", version("torch") or "unknown", tuple(names))


def parse_torch(text: str, otherwise: str, openmp: tuple[str, ...]) -> Torch:
    """Read PyTorch's version.py; it alone tells for what the build is."""
    values = dict(re.findall(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*['\"]([^'\"]*)['\"]", text, re.MULTILINE))
    accelerator = next((f"{name} {values[key]}" for key, name in ACCELERATORS.items() if values.get(key)), "")
    return Torch(values.get("__version__", otherwise), accelerator, openmp)


def ccl(environ: Mapping[str, str]) -> Ccl:
    """Look for oneCCL and the backend over it."""
    asked = build.compiler(environ)
    told = Ccl(compiler=shutil.which(asked) or "", asked=asked)
    try:
        surroundings.check(environ)
    except CclError as error:
        told = replace(told, misfit=error.message, misfit_cure=error.fix)
    try:
        found = locate.find(environ)
    except (CpuFineTuneError, OSError) as error:
        return replace(told, refusal=_message(error), cure=getattr(error, "fix", ""))
    told = replace(told, version=found.version, source=found.source, headers=found.include is not None)
    try:
        # One that came along needs no folder.
        if build.built(found) is not None:
            return replace(told, built=True)
        folder = build.cache()
    # No torch to name the build after, or a home that does not exist or is another user's.
    except (CpuFineTuneError, OSError, RuntimeError) as error:
        return replace(told, refusal=_message(error), cure=getattr(error, "fix", ""))
    return replace(told, unwritable="" if _writable(folder) else str(folder))


def _writable(folder: Path) -> bool:
    """Tell whether a folder can be written, or made if it is not there yet."""
    nearest = next((one for one in (folder, *folder.parents) if os.path.lexists(one)), folder)
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _message(error: Exception) -> str:
    return error.message if isinstance(error, CpuFineTuneError) else str(error)
