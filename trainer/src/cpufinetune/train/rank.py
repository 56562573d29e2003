"""The process of one rank, from joining the world to leaving it. The launcher forks it from a warm process."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cpufinetune.comms import group
from cpufinetune.comms.prepare import Search
from cpufinetune.errors import CpuFineTuneError, ExitCode, Interrupted, JobError, first_line
from cpufinetune.job.load import load
from cpufinetune.report.events import Failure, Heartbeat
from cpufinetune.train import attempt, extension
from cpufinetune.train.data import prepare
from cpufinetune.train.emit import Emitter
from cpufinetune.train.model import source

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune.job.document import Job
    from cpufinetune.train.settings import RankSettings


def main(settings: RankSettings, events: int | None) -> int:
    """Run one rank or one preparation; return its exit code.

    Args:
        settings: from the launcher.
        events: descriptor that events are written to.
    """
    faulthandler.enable()
    emit = Emitter(events, settings.rank, settings.attempt)
    torch.set_num_threads(settings.threads)
    try:
        job = load(Path(settings.job_file), rules=False)
        if settings.role == "prepare":
            prepare_node(job, settings, emit)
        else:
            _train(job, settings, emit)
    except CpuFineTuneError as error:
        if not isinstance(error, Interrupted):
            kind = "Permanent" if isinstance(error, JobError) else "Retryable"
            emit.send(Failure, kind=kind, reason=error.reason, message=error.message, fix=error.fix)
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - a rank's last words, whatever they are
        traceback.print_exc()
        emit.send(Failure, kind="Retryable", reason=type(error).__name__, message=first_line(error), fix="")
        return ExitCode.RETRY
    return ExitCode.OK


def prepare_node(job: Job, settings: RankSettings, emit: Emitter) -> prepare.Prepared:
    """Do for a node what its ranks then only have to read: data, and the choice of a backend."""
    extension.require(job)
    emit.phase("Prepare")
    # Forks, which must come before anything here starts a thread.
    search = Search.begin(job.spec.node.backend, settings.world_size, Path(settings.scratch))
    prepared = prepare_data(job, settings, emit, search.check)
    with emit.beating():
        search.finish()
    return prepared


def prepare_data(
    job: Job, settings: RankSettings, emit: Emitter, meanwhile: Callable[[], None] = lambda: None
) -> prepare.Prepared:
    """Check model and data and tokenise; call `meanwhile` now and then."""

    def beat() -> None:
        emit.send(Heartbeat)
        meanwhile()

    with emit.beating():
        folder = source.locate(job.spec.model, _path(settings.model_root))
    source.remember(folder, Path(settings.scratch))
    source.check_length(folder, job.spec.task.max_length)
    return prepare.prepare(
        job.spec,
        _path(settings.data_root),
        tokenizer=source.load_tokenizer(folder),
        tokenizer_key=source.tokenizer_key(folder),
        scratch=Path(settings.scratch),
        beat=beat,
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _train(job: Job, settings: RankSettings, emit: Emitter) -> None:
    emit.phase("Join")
    stop = _StopRequest()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    choice = group.join(settings)
    emit.phase("Load")
    run = attempt.open_attempt(job, settings, emit, choice)
    stop.trainer = run.trainer
    run.trainer.stop = stop.asked
    run.trainer.train()
    run.finish()
    emit.phase("Done")
    with emit.beating():
        group.part()


class _StopRequest:
    """SIGTERM: stop after the step that is running."""

    def __init__(self) -> None:
        self.asked = False
        self.trainer: Any = None

    def __call__(self, number: int, frame: object) -> None:
        del number, frame
        self.asked = True
        if self.trainer is not None:
            self.trainer.stop = True


def run_and_exit(settings: RankSettings, events: int | None) -> None:
    """Run a rank and end the process at once: a slow teardown of libraries would only delay the next attempt."""
    started = time.perf_counter()
    code = main(settings, events)
    if os.environ.get("CPUFINETUNE_DEBUG"):
        print(f"rank ended with {code} after {time.perf_counter() - started:.1f} s")  # noqa: T201 - goes to the log
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
