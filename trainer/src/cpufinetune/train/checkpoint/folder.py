"""Names in a checkpoint folder, and how it is emptied without touching what is not ours. No torch."""

from __future__ import annotations

import contextlib
import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LATEST = "latest"
BEST = "best"
STEP = re.compile(r"step-(\d{8})")
OURS = re.compile(r"(\.writing-|\.damaged-)?step-\d{8}|latest|\.latest\.tmp")


def clear(folder: Path) -> None:
    """Remove the checkpoints in `folder` and its `best`, and the folders themselves if that leaves them empty."""
    for place in (folder / BEST, folder):
        if not place.is_dir():
            continue
        for path in place.iterdir():
            if OURS.fullmatch(path.name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        with contextlib.suppress(OSError):
            place.rmdir()
