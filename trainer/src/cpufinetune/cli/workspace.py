"""Where a local run finds its model and data and leaves its results."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.errors import JobError
from cpufinetune.job.parse import to_document
from cpufinetune.train.settings import RankSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cpufinetune.job.document import Dataset, Job, Model

LEFT_BY_A_RUN = ("model", "checkpoints", "scratch", "report.json", "loss.png", "loss.svg")


@dataclass(frozen=True, slots=True)
class Workspace:
    """Folders of one run; `None` roots mean the hub."""

    model_root: Path | None
    data_root: Path | None
    output: Path

    @property
    def scratch(self) -> Path:
        """Prepared data, removed after success."""
        return self.output / "scratch"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints, removed after success."""
        return self.output / "checkpoints"

    def template(self, job: Job) -> RankSettings:
        """Write the effective document for the ranks and return what they all share."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        file = self.scratch / "job.json"
        file.write_text(json.dumps(to_document(job), indent=2), encoding="utf-8")
        return RankSettings(
            role="",
            job_file=str(file),
            model_root=None if self.model_root is None else str(self.model_root),
            data_root=None if self.data_root is None else str(self.data_root),
            scratch=str(self.scratch),
            output=str(self.output),
        )


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
        name, equals, folder = text.partition("=")
        if not equals or not name or not folder:
            raise JobError("BadArgument", f"--claim {text}", "write --claim NAME=FOLDER")
        claims[name] = Path(folder)
    return claims


def claim_output(workspace: Workspace, *, overwrite: bool) -> None:
    """Make the output folder ready, refusing to touch a finished model that is there.

    Raises:
        JobError: it holds a model and `overwrite` is off, or it cannot be written.
    """
    if (workspace.output / "model").exists() and not overwrite:
        raise JobError(
            "OutputHasModel", f"{workspace.output}: there is a model already", "use another --output, or --overwrite"
        )
    try:
        if overwrite:
            for name in LEFT_BY_A_RUN:
                path = workspace.output / name
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        workspace.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError("OutputNotWritable", f"{workspace.output}: {error}", "use another --output") from error
