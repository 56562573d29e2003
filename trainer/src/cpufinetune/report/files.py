"""Small files that a reader, or a crash, sees as they were or as they will be, and never a part of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write a file at once, and the folder that it is in if need be.

    Raises:
        OSError: the folder cannot be written; the old file is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # One name for all writers: what a crash leaves behind, the next write takes over.
    unfinished = path.with_name(f".{path.name}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Without this the rename itself may be lost with the machine.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
