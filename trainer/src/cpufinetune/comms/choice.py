"""Which library does the collectives, and why: what one node can do, and what all ranks together settle on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Literal

from cpufinetune.comms.ccl import build, locate, surroundings
from cpufinetune.errors import CpuFineTuneError, first_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cpufinetune.job.document import Backend

FILE = "backend.json"
OFFICIAL = "oneccl_bindings_for_pytorch"
OURS = "cpufinetune"


@dataclass(frozen=True, slots=True)
class Choice:
    """A backend of torch.distributed, or `none` for a single rank.

    Attributes:
        backend: its name there.
        reason: why this one, for people.
        binding: what connects PyTorch with oneCCL: OFFICIAL or OURS; empty for the other backends.
        library: the compiled backend, where it is ours.
        environment: what oneCCL was told, once it is loaded.
        fix: what to do to have oneCCL, where this is gloo for want of it.
    """

    backend: Literal["ccl", "gloo", "none"]
    reason: str
    binding: str = ""
    library: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    fix: str = ""

    @classmethod
    def instead(cls, error: Exception) -> Choice:
        """Take gloo, for the reason that an error of oneCCL gives."""
        if isinstance(error, CpuFineTuneError):
            return cls("gloo", error.message, fix=error.fix)
        return cls("gloo", first_line(error))

    @property
    def explained(self) -> str:
        """The reason with the cure, for a status that has one field for both."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason

    def write(self, scratch: Path) -> None:
        """Leave it for the ranks of this node."""
        scratch.mkdir(parents=True, exist_ok=True)
        # Simulated nodes share the folder: one may read or write while another writes, so each has a name of its own.
        whole = scratch / f".{FILE}-{os.getpid()}"
        whole.write_text(self.encode(), encoding="utf-8")
        whole.replace(scratch / FILE)

    def encode(self) -> str:
        """Return the JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Choice:
        """Read what `encode` wrote."""
        return cls(**json.loads(text))

    @classmethod
    def read(cls, scratch: Path) -> Choice:
        """Read what `write` wrote."""
        return cls.decode((scratch / FILE).read_text(encoding="utf-8"))


SINGLE = Choice("none", "a single rank")
ASKED = Choice("gloo", "asked for")


def settled(wanted: Backend, world_size: int) -> Choice | None:
    """Return the choice where there is nothing to find out.

    Args:
        wanted: the job's `spec.node.backend`.
        world_size: ranks of the job; a single one needs no collectives.
    """
    if world_size == 1:
        return SINGLE
    return ASKED if wanted == "Gloo" else None


def outlook(wanted: Backend, world_size: int) -> Choice:
    """Return what is to be expected, and why, without trying it.

    Args:
        wanted: the job's `spec.node.backend`.
        world_size: ranks of the job.

    Raises:
        CclError: the job insists on oneCCL, and there is none to be used.
    """
    told = settled(wanted, world_size)
    if told is not None:
        return told
    otherwise = "the job fails" if wanted == "CCL" else "gloo"
    try:
        surroundings.check()
        theirs = official(build.torch_version(), binding_version())
        if isinstance(theirs, Choice):
            return replace(theirs, reason=f"{theirs.reason}; {otherwise} if its test fails")
        oneccl = locate.find()
        compiled = build.built(oneccl) is not None
    except locate.CclError as error:
        if wanted == "CCL":
            raise insisted(error.message, error.fix) from error
        return Choice.instead(error)
    when = "compiled" if compiled else "to be compiled on first use, which takes a minute"
    reason = f"oneCCL {oneccl.version}, {oneccl.source}; {when}; {otherwise} if its test fails"
    return Choice("ccl", reason, OURS)


def insisted(reason: str, fix: str) -> locate.CclError:
    """Return the error of a job that insists on oneCCL where there is none."""
    return locate.CclError("BackendUnavailable", f"spec.node.backend is CCL: {reason}", fix or "use Auto or Gloo")


def binding_version() -> str | None:
    """Return the version of the official binding, None where it is not installed."""
    for name in (OFFICIAL, "oneccl_bind_pt"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def official(torch_version: str, binding_version: str | None) -> Choice | str:
    """Take the official binding if it was made for this torch; else say why not.

    Args:
        torch_version: such as 2.8.0+cpu.
        binding_version: None where it is not installed.
    """
    if binding_version is None:
        return f"{OFFICIAL} is not installed"
    if torch_version.split(".")[:2] != binding_version.split(".")[:2]:
        return f"{OFFICIAL} {binding_version} does not match torch {torch_version}"
    return Choice("ccl", f"{OFFICIAL} {binding_version} matches torch {torch_version}", OFFICIAL)


def agree(choices: Sequence[Choice]) -> Choice:
    """Return what all ranks can do: what rank 0 has chosen if all have, else gloo, naming who differs.

    Args:
        choices: by rank.
    """
    first = choices[0]
    for rank, choice in enumerate(choices):
        if (choice.backend, choice.binding) != (first.backend, first.binding):
            other, which = (choice, rank) if choice.backend == "gloo" else (first, 0)
            reason = other.reason if other.backend == "gloo" else f"the ranks have different bindings: {choice.binding}"
            return Choice("gloo", f"rank {which}: {reason}", fix=other.fix)
    return first
