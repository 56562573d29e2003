"""Intel's extension for PyTorch: whether it is used, and how without changing what a checkpoint holds."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import subprocess
import sys
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from cpufinetune.errors import JobError
from cpufinetune.train import extension, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cpufinetune.job.document import Intel
    from cpufinetune.train.emit import Emitter
    from cpufinetune.train.settings import RankSettings

# It replaces functions of these, for old versions of them, and fails on new ones; without them it only lacks what is
# not used here.
KEPT_FROM_IT = ("accelerate", "peft", "torchvision", "transformers")
TRIAL = "cpufinetune.train.trial"
# Less than this is the noise of a trial, and not worth another rounding.
CLEARLY = 0.98
TRIAL_SECONDS = 1200.0  # a trial that takes longer hangs
FAILED = (math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether the extension is used and why; seconds a step of the slowest rank, where both ways were timed."""

    on: bool
    reason: str
    with_seconds: float | None = None
    without_seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """Return it as the report keeps it."""
        figures = {"secondsWith": self.with_seconds, "secondsWithout": self.without_seconds}
        return {"on": self.on, "reason": self.reason, **{name: it for name, it in figures.items() if it is not None}}


def announced(wanted: Intel) -> str:
    """Say what a run would do; a plan times nothing."""
    problem = extension.problem()
    if wanted != "Auto":
        return f"{wanted} (asked for)"
    return f"Off ({problem})" if problem else "Auto (timed with and without when training starts)"


def settled(wanted: Intel, problem: str | None, *, resumed: bool, before: bool | None) -> Choice | None:
    """Choose without measuring, where that is possible.

    Args:
        wanted: by the document.
        problem: why the extension cannot be used on rank 0.
        resumed: training goes on from a checkpoint.
        before: what the checkpoint was trained with; None if it does not say.
    """
    if wanted != "Auto":
        return Choice(wanted == "On", "asked for")
    if problem is not None:
        lost = ", although the checkpoint was trained with it" if before else ""
        return Choice(on=False, reason=problem + lost)
    # Another choice would change how sums are rounded, and with it the weights that an undisturbed run ends with.
    return Choice(bool(before), "as in the run that is resumed") if resumed else None


def decide(figures: Sequence[Sequence[float]]) -> Choice:
    """Choose by each rank's seconds a step with and without: a step takes as long as its slowest rank."""
    failed = [rank for rank, pair in enumerate(figures) if not all(map(math.isfinite, pair))]
    if failed:
        return Choice(on=False, reason=f"the trial failed on rank {failed[0]}, whose log says more")
    slow, plain = (max(column) for column in zip(*figures, strict=True))
    faster = slow < CLEARLY * plain
    return Choice(faster, f"{'faster' if faster else f'not {1 - CLEARLY:.0%} faster'} in a trial", slow, plain)


def choose(
    wanted: Intel,
    settings: RankSettings,
    emit: Emitter,
    *,
    size: int,
    checkpoint: dict[str, Any] | None,
    room: Callable[[], bool],
) -> Choice:
    """Choose for all ranks alike, after a trial if need be; to be called by all of them.

    Args:
        wanted: by the document.
        settings: of this rank.
        emit: shows life during a trial.
        size: samples a micro-batch.
        checkpoint: what rank 0 read of the run that is resumed.
        room: tells whether memory allows for a trial.
    """
    before = (checkpoint or {}).get("intel")
    known = settled(wanted, extension.problem(), resumed=checkpoint is not None, before=before)
    agreed = state.broadcast_json(None if known is None else asdict(known))
    if agreed is None:
        pairs = state.gather(_try(settings, emit, size, room), settings.rank, settings.world_size)
        agreed = state.broadcast_json(asdict(decide(pairs)))
    return Choice(**agreed)


def _try(settings: RankSettings, emit: Emitter, size: int, room: Callable[[], bool]) -> tuple[float, float]:
    """Return seconds a step with and without; infinite if there is no telling."""
    problem = extension.problem() or (None if room() else "memory has no room for a second model")
    if problem:
        emit.warn(f"no trial of {extension.PACKAGE}: {problem}")
        return FAILED
    # A process of its own: to import the extension changes how this one rounds, whether it is used or not.
    command = [sys.executable, "-m", TRIAL, settings.encode(), str(size)]
    receive, hold = os.pipe()
    try:
        with emit.beating():
            # It ends when nobody holds its standard input any more, and so never outlives a rank that is killed.
            done = subprocess.run(  # noqa: S603 - our own module
                command, stdin=receive, stdout=subprocess.PIPE, text=True, check=True, timeout=TRIAL_SECONDS
            )
        found = json.loads(done.stdout.splitlines()[-1])
        return float(found["with"]), float(found["without"])
    except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
        emit.warn(f"the trial of {extension.PACKAGE} failed: {error}")
        return FAILED
    finally:
        os.close(receive)
        os.close(hold)


def apply(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Let the extension compute `model`, in place.

    Parameters stay the float32 tensors that they are, by the same names: packed or split ones are no faster, and a run
    without the extension could not read their checkpoints. It has no fused AdamW for CPUs, so PyTorch's stays.
    """
    library = load()
    # Of operators that it overrides for both directions; gradients are the same with and without.
    warnings.filterwarnings("ignore", message=r"aten::\w+: an autograd kernel was not registered")
    was_training = model.training
    model.train()  # with an optimizer it takes no other
    library.optimize(
        model,
        dtype=torch.float32,
        optimizer=optimizer,
        inplace=True,
        weights_prepack=False,
        split_master_weight_for_bf16=False,
        fuse_update_step=False,
    )
    model.train(was_training)


def load() -> Any:
    """Import the extension as if `KEPT_FROM_IT` were not installed.

    Raises:
        JobError: it is installed and cannot be imported.
    """
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] in KEPT_FROM_IT}
    for name in kept:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(KEPT_FROM_IT))  # type: ignore[arg-type]  # None is how Python marks what is not
    try:
        with _silent():
            return importlib.import_module("intel_extension_for_pytorch")
    except (ImportError, OSError, AttributeError, NameError) as error:
        message = f"{extension.PACKAGE} cannot be imported: {error}"
        raise JobError("IntelUnavailable", message, "install it anew, or set spec.training.intel to 'Off'") from error
    finally:
        for name in KEPT_FROM_IT:
            sys.modules.pop(name, None)
        sys.modules.update(kept)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Drop what libraries write to standard error: that operators are overridden, which is what they are for."""
    sys.stderr.flush()
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)
