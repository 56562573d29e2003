"""What a run would do, found out by preparing its data and building its model, without training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cpufinetune.comms.gradients import word_embeddings
from cpufinetune.train import intel, memory, precision
from cpufinetune.train.batching import BatchPlan
from cpufinetune.train.data.batches import Schedule
from cpufinetune.train.emit import Emitter, base_memory
from cpufinetune.train.model import source
from cpufinetune.train.model.build import build
from cpufinetune.train.rank import prepare_data

if TYPE_CHECKING:
    from cpufinetune.job.document import Job, Training
    from cpufinetune.train.batching import Share
    from cpufinetune.train.settings import RankSettings

FLOAT, BFLOAT16 = 4, 2  # bytes
STEPS_LOOKED_AT = 2000


@dataclass(frozen=True, slots=True)
class Forecast:
    """Sizes in bytes; `wire_bytes` are sent by one rank in one step."""

    samples: dict[str, int]
    classes: tuple[str, ...]
    steps_per_epoch: int
    total_steps: int
    padding_share: float
    micro_batch_size: int
    parameters: int
    trainable_parameters: int
    precision: str
    precision_reason: str
    intel: str
    memory: memory.Estimate
    memory_limit: int | None
    wire_bytes: int
    checkpoint_bytes: int


def forecast(job: Job, settings: RankSettings) -> Forecast:
    """Forecast rank 0 of `settings.world_size` ranks.

    Raises:
        JobError: whatever is wrong with model or data.
    """
    base = base_memory()
    prepared = prepare_data(job, replace(settings, role="prepare"), Emitter(None, 0, 0))
    folder = source.located(Path(settings.scratch))
    train = prepared.split("train")
    assert train is not None  # noqa: S101 - preparation always leaves one
    training = job.spec.training
    built = build(folder, prepared.labels.names, training, weights=True, agree=bool)
    chosen = precision.choose(training.precision, native_bf16=settings.native_bf16)
    schedule = Schedule(len(train), training.batch_size, training.epochs, training.max_steps)
    size = memory.micro_batch_size(job.spec, built, chosen, settings, base)
    plan = BatchPlan(train, schedule, training.seed, settings.rank, settings.world_size, size)
    shares = [plan.share(step) for step in range(min(schedule.total_steps, STEPS_LOOKED_AT))]
    shapes = [(len(part), int(train.lengths[part].max())) for share in shares for part in share.micro_batches]
    parameters = list(built.model.parameters())
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    world = settings.world_size
    return Forecast(
        samples=prepared.samples,
        classes=prepared.labels.names,
        steps_per_epoch=schedule.steps_per_epoch,
        total_steps=schedule.total_steps,
        padding_share=1 - sum(share.tokens for share in shares) / max(1, sum(share.padded_tokens for share in shares)),
        micro_batch_size=size,
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable_parameters=trained,
        precision=chosen.name,
        precision_reason=chosen.reason,
        intel=intel.announced(training.intel),
        memory=memory.estimate(built.model, memory.measure_activations(built, chosen), shapes, base, world),
        memory_limit=memory.limit_of(job.spec, settings),
        # A ring all-reduce sends 2 (n - 1) / n of the gradients.
        wire_bytes=round(2 * (world - 1) / world * gradient_bytes(training) * (trained - _spared(built.model, shares))),
        checkpoint_bytes=(1 + memory.MOMENTS) * FLOAT * trained,
    )


def gradient_bytes(training: Training) -> int:
    """Return what a gradient takes on the wire."""
    return BFLOAT16 if training.gradient_compression == "BFloat16" else FLOAT


def _spared(model: Any, shares: list[Share]) -> int:
    """Return the embedding gradients of a mean step that are zero and not sent."""
    _, weight = word_embeddings(model)
    if weight is None:
        return 0
    rows = fmean(len(share.vocabulary) for share in shares)
    return round((len(weight) - rows) * weight.shape[1])
