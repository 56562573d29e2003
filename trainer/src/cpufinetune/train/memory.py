"""How much memory a rank needs, measured on the model itself, and the micro-batch that fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cpufinetune.job.quantity import to_bytes
from cpufinetune.train.data.store import Batch
from cpufinetune.train.emit import memory as rank_memory
from cpufinetune.train.evaluate import forward

if TYPE_CHECKING:
    from cpufinetune.job.document import Spec
    from cpufinetune.train.model.build import Built
    from cpufinetune.train.precision import Chosen
    from cpufinetune.train.settings import RankSettings

FLOAT = 4  # bytes
MOMENTS = 2  # of Adam, a parameter
# What the allocator holds beyond what is in use, and what kernels need for a moment, as a share of all tensors.
SLACK = 0.15
# Share of the limit that a plan may fill.
FILL = 0.9
SHORT, LONG = 16, 48  # tokens of the measured batches
# Bytes of saved activations a token, layer and hidden feature that no encoder here exceeds; spares the measurement.
ROUGH_BYTES = 160
LIBRARIES = 400 << 20  # of a process that is not forked from one which has them, with Intel's


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes kept for backward: `fixed` + samples * (`linear` * tokens + `square` * tokens**2)."""

    fixed: float
    linear: float
    square: float

    def size(self, samples: int, tokens: int) -> int:
        """Return the bytes of a micro-batch padded to `tokens`."""
        return round(self.fixed + samples * (self.linear * tokens + self.square * tokens**2))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Peak resident bytes of one rank, by what needs them."""

    base: int
    weights: int
    gradients: int
    optimizer: int
    activations: int
    workspace: int

    @property
    def total(self) -> int:
        """All of it, with the allocator's slack."""
        tensors = self.weights + self.gradients + self.optimizer + self.activations + self.workspace
        return self.base + round(tensors * (1 + SLACK))


def measure_activations(built: Built, precision: Chosen) -> Activations:
    """Count what three tiny batches save for backward; everything else follows from their shapes."""
    one = _saved_bytes(built, precision, 1, SHORT)
    two = _saved_bytes(built, precision, 2, SHORT)
    long = _saved_bytes(built, precision, 2, LONG)
    sample = two - one
    # f(S) = linear * S + square * S**2 through both lengths.
    short_rate, long_rate = sample / SHORT, (long - (one - sample)) / 2 / LONG
    square = max(0.0, (long_rate - short_rate) / (LONG - SHORT))
    return Activations(fixed=max(0.0, one - sample), linear=short_rate - square * SHORT, square=square)


def _saved_bytes(built: Built, precision: Chosen, samples: int, tokens: int) -> int:
    parameters = {parameter.untyped_storage().data_ptr() for parameter in built.model.parameters()}
    seen: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = Batch(
        tokens=torch.ones((samples, tokens), dtype=torch.int64),
        mask=torch.ones((samples, tokens), dtype=torch.int64),
        segments=None,
        labels=torch.zeros(samples, dtype=torch.int64),
        lengths=np.full(samples, tokens),
        samples=np.arange(samples),
    )
    was_training = built.model.training
    built.model.train()
    built.stream.enter(0, batch)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with precision.context():
            logits = forward(built.model, batch)
        # The graph must live until all is counted, so that no storage is used twice.
        loss = logits.float().sum()
    del loss, logits
    built.model.train(was_training)
    return sum(seen.values())


def estimate(
    model: Any, activations: Activations, shapes: list[tuple[int, int]], base: int, world_size: int
) -> Estimate:
    """Estimate one rank.

    Args:
        model: built.
        activations: as measured.
        shapes: (samples, padded tokens) of its micro-batches.
        base: resident bytes of a rank that has no model yet.
        world_size: number of ranks.
    """
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters if parameter.requires_grad]
    trained, largest = sum(sizes), max(sizes)
    return Estimate(
        base=base,
        weights=FLOAT * sum(parameter.numel() for parameter in parameters),
        gradients=FLOAT * trained,
        optimizer=MOMENTS * FLOAT * trained,
        activations=max(activations.size(samples, tokens) for samples, tokens in shapes),
        # The largest gradient (an embedding's, as a rule) exists once more before it is in its bucket, and once in
        # the buffers of the all-reduce.
        workspace=FLOAT * largest * (2 if world_size > 1 else 1),
    )


def limit_of(spec: Spec, settings: RankSettings) -> int | None:
    """Return the bytes that one rank may use: the machine's or the document's, whichever is less."""
    limits = [] if settings.memory_limit is None else [settings.memory_limit]
    if spec.node.memory is not None:
        shared = to_bytes(spec.node.shared_memory)
        limits.append((to_bytes(spec.node.memory) - shared) // settings.local_world_size)
    return min(limits) if limits else None


def has_room_for_two(
    spec: Spec, built: Built, precision: Chosen, settings: RankSettings, *, base: int, size: int
) -> bool:
    """Return whether a second process may train a model of its own beside this one, which has only loaded it."""
    limit = limit_of(spec, settings)
    if limit is None:
        return True
    activations = measure_activations(built, precision)
    second = estimate(built.model, activations, [(size, spec.task.max_length)], base, 1).total
    return rank_memory()[1] + second + LIBRARIES <= limit


def micro_batch_size(spec: Spec, built: Built, precision: Chosen, settings: RankSettings, base: int) -> int:
    """Return samples a micro-batch: the job's own, or as many of a rank's share as fit into its memory."""
    share = -(-spec.training.batch_size // settings.world_size)
    if spec.training.micro_batch_size is not None:
        return min(spec.training.micro_batch_size, share)
    limit = limit_of(spec, settings)
    if limit is None:
        return share
    length = spec.task.max_length
    configuration = built.model.config
    width = getattr(configuration, "hidden_size", 0) * getattr(configuration, "num_hidden_layers", 0)
    static = estimate(built.model, Activations(0, 0, 0), [(1, 1)], base, settings.world_size).total
    room = FILL * limit - static
    if width and share * length * width * ROUGH_BYTES < room:
        return share
    activations = measure_activations(built, precision)
    fits = [size for size in range(1, share + 1) if activations.size(size, length) * (1 + SLACK) <= room]
    return fits[-1] if fits else 1
