"""Where oneCCL is: an installation of oneAPI, or the packages `oneccl-cpu` and `impi-rt` of this environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIBRARY = "libccl.so.1"
FABRIC = "libfabric.so.1"
PACKAGES = ("oneccl-cpu", "impi-rt")
INSTALL = "pip install 'cpufinetune[ccl]'"
# The C++ API that the backend is written for came with the first and goes with the last.
OLDEST, NEWEST = (2021, 14), (2021, 99)
# The library for CPUs alone comes before the one that also wants SYCL's.
LIBRARY_FOLDERS = ("lib/ccl/cpu/lib", "lib/ccl/cpu", "lib/cpu", "lib")
ONEAPI = Path("/opt/intel/oneapi")


class CclError(JobError):
    """oneCCL or the backend over it cannot be used as things are; `Auto` takes gloo instead."""


@dataclass(frozen=True, slots=True)
class OneCcl:
    """A usable oneCCL.

    Attributes:
        library: The shared library.
        include: The folder with `oneapi/ccl.hpp`, None where only the run time is installed.
        source: What led to it, for people.
        version: Such as 2021.16.2.
        fabric: libfabric, by which it talks to other hosts; None leaves the search to oneCCL.
    """

    library: Path
    include: Path | None
    source: str
    version: str
    fabric: Path | None


def find(environ: Mapping[str, str] | None = None) -> OneCcl:
    """Find oneCCL: CCL_ROOT first, then oneAPI's folder, then the packages.

    Raises:
        CclError: there is none, or one of a version without the C++ API; a broken CCL_ROOT is not passed over.
    """
    environ = os.environ if environ is None else environ
    found = _in_folder(Path(environ["CCL_ROOT"]), "CCL_ROOT") if environ.get("CCL_ROOT") else None
    if found is None:
        found = _in_oneapi(Path(environ.get("ONEAPI_ROOT") or ONEAPI)) or _in_packages()
    if found is None:
        raise CclError("NoOneCcl", "oneCCL is not installed: neither CCL_ROOT, oneAPI nor oneccl-cpu", INSTALL)
    if found.version != "unknown" and not OLDEST <= _numbers(found.version)[:2] <= NEWEST:
        raise CclError(
            "OneCclVersion",
            f"oneCCL {found.version} ({found.source}) is not supported: the backend needs 2021.14 or a later 2021",
            INSTALL,
        )
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _in_oneapi(root: Path) -> OneCcl | None:
    folder = root / "ccl" / "latest"
    return _in_folder(folder, f"oneAPI in {root}") if os.access(folder, os.R_OK) else None


def _in_folder(root: Path, source: str) -> OneCcl:
    library = _first(root / folder / LIBRARY for folder in LIBRARY_FOLDERS)
    if library is None:
        raise CclError(
            "NoOneCcl",
            f"{source} leads to {root}, which has no lib/{LIBRARY}",
            "point CCL_ROOT at a oneCCL installation, or unset it",
        )
    include = root / "include"
    mpi = root.parent.parent / "mpi" / "latest"
    fabric = _first(
        folder / FABRIC
        for folder in (library.parent, root / "lib", mpi / "opt/mpi/libfabric/lib", mpi / "libfabric/lib", mpi / "lib")
    )
    header = include / "oneapi" / "ccl" / "config.h"
    return OneCcl(library, include if _is_file(header) else None, source, _header_version(header), fabric)


def _first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:
        # Below a folder that this user may not enter: as good as not there.
        return False


def _header_version(header: Path) -> str:
    if not _is_file(header):
        return "unknown"
    text = header.read_text()
    parts = [re.search(rf"CCL_{part}_VERSION\s+(\d+)", text) for part in ("MAJOR", "MINOR", "UPDATE")]
    return ".".join(part[1] for part in parts if part)


def _in_packages() -> OneCcl | None:
    name, fabric_package = PACKAGES
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    library = _packaged(distribution, LIBRARY)
    if library is None:
        raise CclError("NoOneCcl", f"the package {name} {distribution.version} has no {LIBRARY}", INSTALL)
    try:
        fabric = _packaged(metadata.distribution(fabric_package), FABRIC)
    except metadata.PackageNotFoundError:
        raise CclError("NoOneCcl", f"{name} is installed, {fabric_package} with libfabric is not", INSTALL) from None
    root = library.parent.parent
    include = root / "include" if (root / "include" / "oneapi" / "ccl.hpp").is_file() else None
    return OneCcl(library, include, f"package {name} {distribution.version}", distribution.version, fabric)


def _packaged(distribution: metadata.Distribution, file: str) -> Path | None:
    for entry in distribution.files or ():
        if entry.name == file:
            path = Path(str(distribution.locate_file(entry))).resolve()
            # The name is a link to the versioned file in some packages; the folder is what matters.
            return path.parent / file if (path.parent / file).exists() else path
    return None
