"""The output folder of a pod: whose it is, what of an earlier life counts, and that a finished job stays finished."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import AttemptError, JobError
from cpufinetune.job.parse import to_document
from cpufinetune.launch.termination import MARKER, read_marker
from cpufinetune.report.files import replace_text
from cpufinetune.train.checkpoint import folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cpufinetune.job.document import Job

STATE = ".cpufinetune"
LOCK = ".cpufinetune.lock"
# Errors that another try would meet again.
LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOSPC, errno.EDQUOT}
# What a checkpoint depends on; suspended, a job may change any of it.
RECIPE = ("model", "dataset", "task", "training")


@dataclass(frozen=True, slots=True)
class Output:
    """The folder at `path` as the job with this `uid` may use it."""

    path: Path
    uid: str

    @property
    def events(self) -> Path:
        """The events of all lives of this job."""
        return self.path / STATE / "events"

    @property
    def journal(self) -> Path:
        """How its attempts ended."""
        return self.path / STATE / "attempts"

    @property
    def finished(self) -> Path:
        """The last word of a job that is complete."""
        return self.path / STATE / MARKER

    @property
    def checkpoints(self) -> Path:
        """Checkpoints, removed after success."""
        return self.path / "checkpoints"

    @property
    def _owner(self) -> Path:
        return self.path / STATE / "owner.json"

    def last_word(self) -> dict[str, Any] | None:
        """Return what this job ended with, if it is complete.

        Raises:
            JobError: the folder cannot be read.
            AttemptError: it cannot be read now.
        """
        try:
            found = read_marker(self.finished)
        except OSError as error:
            raise self._unusable(error) from error
        return found if found and found.get("uid") == self.uid and found.get("code") == 0 else None

    @contextlib.contextmanager
    def hold(self, job: Job) -> Iterator[str]:
        """Hold the folder for this job alone; yields a line on what was found there, or nothing.

        Raises:
            JobError: there is another job's model, another job uses it, or it cannot be written.
            AttemptError: an earlier life of this job still seems to use it.
        """
        with contextlib.ExitStack() as stack:
            try:
                (self.path / STATE).mkdir(parents=True, exist_ok=True)
                owner = read_marker(self._owner) or {}
                self._lock(stack, owner)
                note = self._take(owner, job)
            except OSError as error:
                raise self._unusable(error) from error
            yield note

    def _unusable(self, error: OSError) -> JobError | AttemptError:
        """What to make of an error: a network volume fails over within minutes, and the job must outlive that."""
        if error.errno in LASTING:
            return JobError("OutputNotWritable", f"{self.path}: {error}", "give a volume that the pod's user may write")
        return AttemptError("OutputUnreachable", f"{self.path}: {error}")

    def _lock(self, stack: contextlib.ExitStack, owner: dict[str, Any]) -> None:
        file = stack.enter_context((self.path / LOCK).open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if owner.get("uid") == self.uid:
                raise AttemptError("OutputBusy", f"{self.path}: an earlier pod of this job still holds it") from error
            raise JobError(
                "OutputBusy", f"{self.path}: another job uses it", "give each job a spec.output.path of its own"
            ) from error
        except OSError as error:
            # Not all network volumes have locks.
            if error.errno not in {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}:
                raise

    def _take(self, owner: dict[str, Any], job: Job) -> str:
        ours = owner.get("uid") == self.uid
        if (self.path / "model").exists() and not ours:
            raise JobError(
                "OutputHasModel",
                f"{self.path}: there is the model of another job",
                "use another spec.output.path or claim, or move the model away",
            )
        recipe = _recipe(job)
        note = ""
        if not ours:
            # Checkpoints stay: ranks resume them if they are of the same recipe, and refuse them if not.
            self._forget()
        elif owner.get("recipe") != recipe:
            note = "model, dataset, task or training changed while the job was suspended: it starts anew"
            self._forget()
            folder.clear(self.checkpoints)
        replace_text(self._owner, json.dumps({"uid": self.uid, "recipe": recipe}))
        return note

    def clear(self) -> None:
        """Remove what a complete job needs no more."""
        with contextlib.suppress(OSError):
            self._forget()
            folder.clear(self.checkpoints)

    def _forget(self) -> None:
        for path in (self.events, self.journal):
            path.unlink(missing_ok=True)


def _recipe(job: Job) -> str:
    spec = to_document(job)["spec"]
    text = json.dumps({name: spec[name] for name in RECIPE}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
