"""One attempt of one rank: model, optimizer and state as the last checkpoint left them, and the ending."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cpufinetune.comms.gradients import GradientSync
from cpufinetune.errors import JobError
from cpufinetune.job.document import Training
from cpufinetune.report.events import Result, Setup
from cpufinetune.train import intel, memory, precision, state
from cpufinetune.train.batching import BatchPlan
from cpufinetune.train.checkpoint.folder import BEST
from cpufinetune.train.checkpoint.store import Checkpoint, CheckpointStore, digest, explain, sync
from cpufinetune.train.data import prepare
from cpufinetune.train.data.batches import Schedule
from cpufinetune.train.emit import base_memory
from cpufinetune.train.loop import Trainer
from cpufinetune.train.model import source
from cpufinetune.train.model.build import Built, build, parameter_groups, save_model

if TYPE_CHECKING:
    from cpufinetune.comms.choice import Choice
    from cpufinetune.job.document import Job, Spec
    from cpufinetune.train.emit import Emitter
    from cpufinetune.train.settings import RankSettings

CHECKPOINTS = "checkpoints"
MODEL = "model"
UMASK = os.umask(0)
os.umask(UMASK)
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
LATER = ("intel", "gradient_compression")


def job_key(spec: Spec, folder: Path, prepared: prepare.Prepared) -> str:
    """Return a name for what is trained: a checkpoint of other weights, data or recipe must not be resumed."""
    parts = [source.weights_key(folder), prepared.folder.name, asdict(spec.task), recipe(spec.training)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def recipe(training: Training) -> dict[str, Any]:
    """Return what of the hyperparameters tells one run from another.

    Fields of a later version count only where they are used: checkpoints of before stay good.
    """
    fields = asdict(training)
    return {name: value for name, value in fields.items() if name not in LATER or value != getattr(Training(), name)}


@dataclass(slots=True)
class Attempt:
    """A trainer and what is left to do once it is done."""

    trainer: Trainer
    tokenizer_folder: Path
    output: Path

    def finish(self) -> None:
        """Take the best weights, test them, and let rank 0 write the model folder."""
        trainer = self.trainer
        _take_best(trainer)
        metrics = dict(trainer.progress.best_metrics)
        if "test" in trainer.prepared.samples:
            trainer.emit.phase("Evaluate")
        found = trainer.measure("test")
        if found is not None:
            trainer.report_evaluation("test", found, best=False)
            metrics = trainer.primary_first(found.metrics)
        trainer.emit.resources()
        if trainer.rank == 0:
            trainer.emit.phase("Save")
            self._save(metrics)

    def _save(self, metrics: dict[str, float]) -> None:
        final = self.output / MODEL
        temporary = self.output / f".{MODEL}.writing"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            save_model(self.trainer.built.model, source.load_tokenizer(self.tokenizer_folder), temporary)
            for path in (*temporary.iterdir(), temporary):
                # safetensors writes for its owner only; a model is there to be served.
                path.chmod(0o777 & ~UMASK if path.is_dir() else 0o666 & ~UMASK)
                sync(path)
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise explain(error, self.output) from error
        # Only a model that is whole takes the place of an earlier one.
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
        sync(self.output)
        weights = final / "model.safetensors"
        self.trainer.emit.send(
            Result,
            path=str(final),
            metrics=metrics,
            checksum=f"sha256:{digest(weights)}",
            bytes=sum(path.stat().st_size for path in final.iterdir()),
            steps=self.trainer.progress.step,
            best_step=self.trainer.progress.best_step,
        )


def _take_best(trainer: Trainer) -> None:
    if trainer.progress.best_step in {None, trainer.progress.step}:
        return
    tensors = state.trainable(trainer.built.model)
    found = trainer.best.read(trainer.progress.best_step) if trainer.rank == 0 else None
    if found is not None:
        state.copy_into(tensors, found.tensors["model"])
    if state.broadcast_json(found is not None):
        if trainer.world_size > 1:
            state.broadcast(tensors.values())
        return
    # Only after falling back to an earlier checkpoint whose best was overtaken since.
    trainer.best.warn("the best weights are gone; the last ones are kept")
    found_anew = trainer.measure("validation")
    if found_anew is not None:
        trainer.progress.best_metrics = trainer.primary_first(found_anew.metrics)


def open_attempt(job: Job, settings: RankSettings, emit: Emitter, backend: Choice) -> Attempt:
    """Build everything and resume from the newest whole checkpoint."""
    spec, output = job.spec, Path(settings.output)
    base = base_memory()
    folder, prepared = source.located(Path(settings.scratch)), prepare.load_current(Path(settings.scratch))
    built = build(folder, prepared.labels.names, spec.training, weights=settings.rank == 0, agree=state.broadcast_json)
    chosen = precision.choose(spec.training.precision, native_bf16=settings.native_bf16)
    checkpoints = CheckpointStore(output / CHECKPOINTS, emit.warn)
    key = job_key(spec, folder, prepared)
    found = _restore_model(built, checkpoints, key) if settings.rank == 0 else None
    size = memory.micro_batch_size(spec, built, chosen, settings, base)
    optimizer = new_optimizer(built, spec.training)
    saved = None if found is None else found.state
    room = lambda: memory.has_room_for_two(spec, built, chosen, settings, base=base, size=size)  # noqa: E731 - short
    extension = intel.choose(spec.training.intel, settings, emit, size=size, checkpoint=saved, room=room)
    if extension.on:
        intel.apply(built.model, optimizer)
    compress = spec.training.gradient_compression == "BFloat16"
    trainer = Trainer(
        spec=spec,
        built=built,
        sync=GradientSync(built.model, settings.world_size, backend, compress=compress),
        optimizer=optimizer,
        prepared=prepared,
        plan=batch_plan(spec, prepared, settings, size),
        precision=chosen,
        checkpoints=checkpoints,
        best=CheckpointStore(output / CHECKPOINTS / BEST, checkpoints.warn),
        emit=emit,
        rank=settings.rank,
        world_size=settings.world_size,
        job_key=key,
    )
    resumed = _restore_rest(trainer, found)
    trainer.progress.intel = extension.on
    if settings.rank == 0:
        emit.send(Setup, **_setup(trainer, folder, resumed, extension))
    return Attempt(trainer, folder, output)


def new_optimizer(built: Built, training: Training) -> torch.optim.Optimizer:
    """Return an optimizer without state."""
    groups = parameter_groups(built.model, training.weight_decay)
    return torch.optim.AdamW(groups, betas=ADAM_BETAS, eps=ADAM_EPSILON, fused=True)


def batch_plan(spec: Spec, prepared: prepare.Prepared, settings: RankSettings, micro_batch_size: int) -> BatchPlan:
    """Return the batches as this rank sees them."""
    train = prepared.split("train")
    if train is None:
        raise JobError("NoTrainingData", "the job has no training split")
    training = spec.training
    return BatchPlan(
        train,
        Schedule(len(train), training.batch_size, training.epochs, training.max_steps),
        training.seed,
        settings.rank,
        settings.world_size,
        micro_batch_size,
        prepared.pad_token,
    )


def _restore_model(built: Built, checkpoints: CheckpointStore, key: str) -> Checkpoint | None:
    found = checkpoints.read()
    if found is None:
        return None
    if found.state["job"] != key:
        raise JobError(
            "OtherJob",
            f"{found.path} is a checkpoint of another model, dataset, task or training recipe",
            "use another output folder, or --overwrite to start anew",
        )
    state.copy_into(state.trainable(built.model), found.tensors["model"])
    return found


def _restore_rest(trainer: Trainer, found: Checkpoint | None) -> int | None:
    """Give all ranks the state that rank 0 read; return the step it was of."""
    document: dict[str, Any] | None = None
    if found is not None:
        document = {**found.state, "moments": list(found.tensors["optimizer"])}
    document = state.broadcast_json(document)
    if document is None:
        return None
    trainer.progress = state.RunState.read(document)
    state.allocate_moments(trainer.built.model, trainer.optimizer, set(document["moments"]), trainer.progress.step)
    tensors = state.moments(trainer.built.model, trainer.optimizer)
    if found is not None:
        state.copy_into(tensors, found.tensors["optimizer"])
    if trainer.world_size > 1:
        state.broadcast(tensors.values())
    return trainer.progress.step


def _setup(trainer: Trainer, folder: Path, resumed: int | None, extension: intel.Choice) -> dict[str, Any]:
    parameters = list(trainer.built.model.parameters())
    samples = trainer.prepared.samples
    return {
        "world_size": trainer.world_size,
        "total_steps": trainer.plan.schedule.total_steps,
        "backend": trainer.sync.choice.backend,
        "backend_reason": trainer.sync.choice.explained,
        "precision": trainer.precision.name,
        "precision_reason": trainer.precision.reason,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable_parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "model": trainer.spec.model.name or folder.name,
        "resumed_from_step": resumed,
        "train_samples": samples["train"],
        "validation_samples": samples.get("validation", 0),
        "test_samples": samples.get("test", 0),
        "labels": trainer.prepared.labels.names,
        "extra": {
            "levers": list(trainer.built.levers),
            "microBatchSize": trainer.plan.micro_batch_size,
            "intel": extension.document(),
            "gradients": trainer.sync.describe(),
        },
    }
