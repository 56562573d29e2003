"""A process that times steps of a job with and without Intel's extension, on a model of its own.

Started by `intel` on each rank; prints one JSON object. Real batches, a real optimizer, the loop of training: only
the weights are random and nothing crosses the network.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

import torch

from cpufinetune.comms.gradients import GradientSync
from cpufinetune.job.load import load
from cpufinetune.train import attempt, intel, precision
from cpufinetune.train.checkpoint.store import CheckpointStore
from cpufinetune.train.data import prepare
from cpufinetune.train.emit import Emitter
from cpufinetune.train.loop import Trainer
from cpufinetune.train.model import source
from cpufinetune.train.model.build import build
from cpufinetune.train.settings import RankSettings

WARM_UP, STEPS = 3, 10
LONGEST = 240.0  # seconds for either way; where steps are slow, fewer tell as much


def main(settings: RankSettings, size: int) -> None:
    """Time both ways on the same batches and print seconds a step."""
    threading.Thread(target=_end_with_the_rank, daemon=True).start()
    torch.set_num_threads(settings.threads)
    trainer = rehearse(settings, size)
    without = median_seconds(trainer)
    intel.apply(trainer.built.model, trainer.optimizer)
    print(json.dumps({"without": without, "with": median_seconds(trainer)}), flush=True)  # noqa: T201 - the answer


def _end_with_the_rank() -> None:
    os.read(0, 1)
    os._exit(1)


def rehearse(settings: RankSettings, size: int) -> Trainer:
    """Build a trainer that takes this rank's share of each step and has no peers.

    Args:
        settings: of the rank.
        size: samples a micro-batch.
    """
    spec = load(Path(settings.job_file), rules=False).spec
    folder = source.located(Path(settings.scratch))
    prepared = prepare.load_current(Path(settings.scratch))
    built = build(folder, prepared.labels.names, spec.training, weights=False, agree=bool)
    emit = Emitter(None, settings.rank, settings.attempt)
    unused = CheckpointStore(Path(settings.output), emit.warn)
    trainer = Trainer(
        spec=spec,
        built=built,
        sync=GradientSync(built.model, 1),
        optimizer=attempt.new_optimizer(built, spec.training),
        prepared=prepared,
        plan=attempt.batch_plan(spec, prepared, settings, size),
        precision=precision.choose(spec.training.precision, native_bf16=settings.native_bf16),
        checkpoints=unused,
        best=unused,
        emit=emit,
        rank=settings.rank,
        world_size=1,
        job_key="",
    )
    trainer.sync.wrapped.train()
    return trainer


def median_seconds(trainer: Trainer) -> float:
    """Train the first batches; return seconds a step."""
    trainer.progress.step = 0
    started = time.perf_counter()
    seconds = []
    for number in range(WARM_UP + STEPS):
        before = time.perf_counter()
        trainer.take_step()
        now = time.perf_counter()
        if number >= WARM_UP or now - started > LONGEST:
            seconds.append(now - before)
        if now - started > LONGEST:
            break
    return statistics.median(seconds)


if __name__ == "__main__":
    main(RankSettings.decode(sys.argv[1]), int(sys.argv[2]))
