"""Where the compiled backend is kept, and what makes two of them different."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.comms.ccl import locate

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES = Path(__file__).parent / "csrc"
PREBUILT = Path(__file__).parent / "prebuilt"
MODULE = "cpufinetune_ccl"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def torch_version() -> str:
    """Return the version of PyTorch that is installed, such as 2.8.0+cpu.

    Raises:
        CclError: there is none.
    """
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise locate.CclError("NoTorch", "PyTorch is not installed", "pip install 'cpufinetune[trainer]'") from None


def key(oneccl: locate.OneCcl) -> str:
    """Name a build: what it was compiled from and against. A build for another torch does not load.

    Raises:
        CclError: there is no torch.
    """
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(f"{sys.implementation.cache_tag} {oneccl.library.parent}".encode())
    return f"torch-{torch_version()}-ccl-{oneccl.version}-{digest.hexdigest()[:12]}"


def compiler(environ: Mapping[str, str] | None = None) -> str:
    """Return the command of the C++ compiler."""
    return (os.environ if environ is None else environ).get("CXX") or "g++"


def cache() -> Path:
    """Return the folder of builds made on first use.

    Raises:
        CclError: there is no home folder.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - never raises
    if not home.is_absolute():
        raise locate.CclError(
            "NoCache", "there is no home folder to keep the compiled oneCCL backend in", "set XDG_CACHE_HOME"
        )
    return home / "cpufinetune" / "ccl"


def trusted(path: Path) -> bool:
    """Whether a compiled backend is there and nobody else can have put it there: loading it runs it."""
    # Unlike is_file, this does not raise where a folder may not be entered.
    if not os.access(path, os.R_OK):
        return False
    found = [path.stat(), path.parent.stat()]
    return all(one.st_uid in (0, os.geteuid()) and not one.st_mode & OTHERS_WRITE for one in found)


def built(oneccl: locate.OneCcl | None = None) -> Path | None:
    """Return the compiled backend for this torch and this oneCCL, if there is one.

    Raises:
        CclError: there is no usable oneCCL, or no home folder.
    """
    name = Path(key(oneccl or locate.find())) / f"{MODULE}.so"
    # As safe as this package is, of which it is a part.
    if os.access(PREBUILT / name, os.R_OK):
        return PREBUILT / name
    return cache() / name if trusted(cache() / name) else None
