"""Where a local run finds its model and data and leaves its results."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.errors import JobError
from cpufinetune.launch.assembly import make_template
from cpufinetune.train.checkpoint import folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cpufinetune.job.document import Dataset, Job, Model
    from cpufinetune.train.settings import RankSettings

LOCK = ".cpufinetune.lock"


@dataclass(frozen=True, slots=True)
class Workspace:
    """Folders of one run; `None` roots mean the hub."""

    model_root: Path | None
    data_root: Path | None
    output: Path

    @property
    def scratch(self) -> Path:
        """Prepared data, removed after success."""
        return self.output / ".cpufinetune"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints, removed after success."""
        return self.output / "checkpoints"

    @property
    def events(self) -> Path:
        """The events of this run and of those that it resumes."""
        return self.scratch / "events"

    def has_checkpoints(self) -> bool:
        """Tell whether there is something to resume from."""
        return self.checkpoints.is_dir() and any(
            folder.STEP.fullmatch(path.name) for path in self.checkpoints.iterdir()
        )

    def clear(self) -> None:
        """Remove what a finished run needs no more."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        folder.clear(self.checkpoints)

    def template(self, job: Job) -> RankSettings:
        """Write the effective document for the ranks and return what they all share."""
        try:
            return make_template(
                job,
                model_root=self.model_root,
                data_root=self.data_root,
                scratch=self.scratch,
                output=self.output,
            )
        except OSError as error:
            raise JobError("OutputNotWritable", f"{self.scratch}: {error}", "use another --output") from error


def resolve(job: Job, file: Path, output: Path | None, claims: Mapping[str, Path]) -> Workspace:
    """Find the folders; relative paths in the document are relative to it.

    Args:
        job: the document.
        file: where it was read from.
        output: overrides the document's; by default a folder named after the job, here.
        claims: folders that stand in for the claims of a cluster.
    """
    base = file.resolve().parent
    if output is None:
        output = _output(job, base, claims)
    return Workspace(
        model_root=_root(job.spec.model, "model", base, claims),
        data_root=_root(job.spec.dataset, "dataset", base, claims),
        output=output.resolve(),
    )


def _output(job: Job, base: Path, claims: Mapping[str, Path]) -> Path:
    wanted = job.spec.output
    if wanted.claim is not None and wanted.claim in claims:
        return claims[wanted.claim] / (wanted.path or job.name)
    return base / wanted.path if wanted.path and wanted.claim is None else Path(job.name)


def _root(reference: Model | Dataset, field: str, base: Path, claims: Mapping[str, Path]) -> Path | None:
    if reference.claim is not None:
        if reference.claim not in claims:
            raise JobError(
                "ClaimWithoutFolder",
                f"spec.{field}.claim '{reference.claim}' exists in a cluster only",
                f"say which folder stands in for it: --claim {reference.claim}=FOLDER",
            )
        return (claims[reference.claim] / (reference.path or "")).resolve()
    return None if reference.path is None else (base / reference.path).resolve()


def parse_claims(texts: Sequence[str]) -> dict[str, Path]:
    """Read `NAME=FOLDER` arguments."""
    claims = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or not name or not place:
            raise JobError("BadArgument", f"--claim {text}", "write --claim NAME=FOLDER")
        claims[name] = Path(place)
    return claims


@contextlib.contextmanager
def claim_output(workspace: Workspace, *, overwrite: bool) -> Iterator[None]:
    """Hold the output folder for this run alone, refusing to touch a finished model that is there.

    With `overwrite` a model that is there stays until a new one is whole; checkpoints go at once.

    Raises:
        JobError: it holds a model and `overwrite` is off, another run uses it, input lies in what will be replaced, or
            it cannot be written.
    """
    model = workspace.output / "model"
    if model.exists() and not overwrite:
        raise JobError(
            "OutputHasModel", f"{workspace.output}: there is a model already", "use another --output, or --overwrite"
        )
    for root in (workspace.model_root, workspace.data_root):
        if root is not None and any(root.is_relative_to(place) for place in (model, workspace.scratch)):
            raise JobError("InputInOutput", f"{root}: this run would replace its own input", "use another --output")
    with contextlib.ExitStack() as stack:
        try:
            workspace.scratch.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((workspace.output / LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if overwrite:
                folder.clear(workspace.checkpoints)
        except BlockingIOError as error:
            raise JobError("OutputBusy", f"{workspace.output}: another run uses it", "use another --output") from error
        except OSError as error:
            raise JobError("OutputNotWritable", f"{workspace.output}: {error}", "use another --output") from error
        yield
        (workspace.output / LOCK).unlink(missing_ok=True)
