"""Where the compiled backend is kept, and what makes two of them different."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib import metadata
from pathlib import Path

from cpufinetune.comms.ccl import locate

SOURCES = Path(__file__).parent / "csrc"
PREBUILT = Path(__file__).parent / "prebuilt"
MODULE = "cpufinetune_ccl"


def key(oneccl: locate.OneCcl) -> str:
    """Name a build: what it was compiled from and against. A build for another torch does not load."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(f"{sys.implementation.cache_tag} {oneccl.library.parent}".encode())
    return f"torch-{metadata.version('torch')}-ccl-{oneccl.version}-{digest.hexdigest()[:12]}"


def cache() -> Path:
    """Return the folder of builds made on first use."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never raises
    return Path(home) / "cpufinetune" / "ccl"


def built(oneccl: locate.OneCcl | None = None) -> Path | None:
    """Return the compiled backend for this torch and this oneCCL, if there is one.

    Raises:
        CclError: there is no usable oneCCL.
    """
    name = key(oneccl or locate.find())
    for folder in (PREBUILT, cache()):
        path = folder / name / f"{MODULE}.so"
        # Unlike is_file, this does not raise where a folder may not be entered.
        if os.access(path, os.R_OK):
            return path
    return None
