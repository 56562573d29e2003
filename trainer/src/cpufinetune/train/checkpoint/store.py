"""Checkpoints on disk: written whole or not at all, checked when read, the broken skipped for the one before.

    <folder>/step-00000200/{model,optimizer}.safetensors, state.json
    <folder>/latest                                         the name of the newest whole checkpoint

A checkpoint is written to a hidden folder, fsynced, renamed, and only then named by `latest`. `state.json` holds size
and SHA-256 of each file, so a half-written or damaged checkpoint is known as such.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from cpufinetune.errors import AttemptError, JobError
from cpufinetune.train.checkpoint.folder import LATEST, STEP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch

STATE = "state.json"
NOT_WRITABLE = (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
HASH_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint that was read: `tensors[file][name]` and the state that was saved beside them."""

    path: Path
    tensors: dict[str, dict[str, torch.Tensor]]
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CheckpointStore:
    """The checkpoints of one job in `folder`; the newest `keep` are kept. `warn` gets one line a broken one."""

    folder: Path
    warn: Callable[[str], None]
    keep: int = 2

    def write(self, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]], state: Mapping[str, Any]) -> Path:
        """Write one checkpoint and make it the latest.

        Args:
            step: optimizer steps done.
            tensors: a mapping of tensors for each file name (without suffix).
            state: JSON values.

        Raises:
            JobError: the volume is full or not writable; earlier checkpoints are intact.
        """
        final = self.folder / f"step-{step:08d}"
        temporary = self.folder / f".writing-step-{step:08d}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            files = {}
            for name, values in tensors.items():
                path = temporary / f"{name}.safetensors"
                save_file(dict(values), path)
                sync(path)
                files[path.name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
            write_text(temporary / STATE, _seal({**state, "step": step, "files": files}))
            sync(temporary)
            shutil.rmtree(final, ignore_errors=True)
            temporary.rename(final)
            sync(self.folder)
            write_text(self.folder / LATEST, final.name)
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise explain(error, self.folder) from error
        self._prune(final.name)
        return final

    def read(self, step: int | None = None) -> Checkpoint | None:
        """Return the newest whole checkpoint, or the one of `step`; None if there is none."""
        for path in self._newest_first():
            if step is not None and path.name != f"step-{step:08d}":
                continue
            try:
                return _read(path)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self.warn(f"checkpoint {path.name} is damaged and skipped: {error}")
                # It must not take the place of a good one; the next write removes it.
                with contextlib.suppress(OSError):
                    path.rename(path.with_name(f".damaged-{path.name}"))
        return None

    def _newest_first(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return sorted((path for path in self.folder.iterdir() if STEP.fullmatch(path.name)), reverse=True)

    def _prune(self, newest: str) -> None:
        for path in (
            *self._newest_first()[self.keep :],
            *self.folder.glob(".writing-*"),
            *self.folder.glob(".damaged-*"),
        ):
            if path.name != newest:
                shutil.rmtree(path, ignore_errors=True)


def _read(path: Path) -> Checkpoint:
    state = _unseal((path / STATE).read_text(encoding="utf-8"))
    if path.name != f"step-{state['step']:08d}":
        raise ValueError(f"it says that it is of step {state['step']}")
    tensors = {}
    for name, expected in state["files"].items():
        file = path / name
        if file.stat().st_size != expected["bytes"]:
            raise ValueError(f"{name} has {file.stat().st_size} bytes instead of {expected['bytes']}")
        if digest(file) != expected["sha256"]:
            raise ValueError(f"{name} does not have the checksum it was written with")
        tensors[file.stem] = load_file(file)
    return Checkpoint(path, tensors, state)


def _seal(state: Mapping[str, Any]) -> str:
    return json.dumps({**state, "seal": _seal_of(state)})


def _unseal(text: str) -> dict[str, Any]:
    state = json.loads(text)
    if not isinstance(state, dict):
        raise TypeError(f"{STATE} holds no object")
    if state.pop("seal", None) != _seal_of(state):
        raise ValueError(f"{STATE} does not have the checksum it was written with")
    return state


def _seal_of(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(HASH_BLOCK):
            found.update(block)
    return found.hexdigest()


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Replace a small file at once."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def explain(error: Exception, folder: Path) -> Exception:
    """Return what to raise when `folder` could not be written."""
    # safetensors reports I/O errors as its own type, with the number in the text only.
    number = getattr(error, "errno", None)
    text = str(error)
    if number in FULL or any(f"os error {code}" in text for code in FULL):
        free = shutil.disk_usage(folder).free if folder.exists() else 0
        return JobError(
            "OutputFull",
            f"{folder}: the volume is full ({free >> 20} MiB left); earlier checkpoints are intact",
            "free or enlarge the volume, then run the job again: it resumes",
        )
    if isinstance(error, OSError) and number in NOT_WRITABLE:
        return JobError("OutputNotWritable", f"{folder}: {error}", "give a folder that this user may write")
    return AttemptError("WriteFailed", f"{folder}: {error}")
