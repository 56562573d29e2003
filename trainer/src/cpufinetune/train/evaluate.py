"""Evaluation, shared out over the ranks: every sample is counted once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import distributed

from cpufinetune.train.data.batches import plan_evaluation
from cpufinetune.train.tasks.metrics import confusion, measure

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from cpufinetune.train.data.store import Batch, Split

BATCH = 64


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Metrics of one split over all ranks."""

    metrics: dict[str, float]
    samples: int
    seconds: float


def evaluate(
    model: Any,
    split: Split,
    *,
    classes: int,
    positive: int,
    pad_token: int,
    rank: int,
    world_size: int,
    precision: Callable[[], AbstractContextManager[Any]],
    beat: Callable[[], None],
) -> Evaluated:
    """Measure `model` on `split`; every rank gets the same result.

    Args:
        model: the bare model, not its gradient-averaging wrapper.
        split: tokenised samples.
        classes: number of labels.
        positive: the label whose F1 is reported for two classes.
        pad_token: fills short rows.
        rank: this rank.
        world_size: number of ranks.
        precision: gives the autocast context.
        beat: called after each batch.
    """
    started = time.perf_counter()
    was_training = model.training
    model.eval()
    counts = np.zeros((classes, classes), dtype=np.int64)
    loss = 0.0
    with torch.inference_mode():
        for samples in plan_evaluation(split.lengths, BATCH, world_size, rank):
            batch = split.batch(samples, pad_token)
            with precision():
                logits = forward(model, batch).float()
            loss += float(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
            counts += confusion(batch.labels.numpy(), logits.argmax(dim=-1).numpy(), classes)
            beat()
    model.train(was_training)
    totals = torch.from_numpy(np.append(counts.astype(np.float64).ravel(), loss))
    if world_size > 1:
        distributed.all_reduce(totals)
    summed = totals[:-1].numpy().round().astype(np.int64).reshape(classes, classes)
    metrics = measure(summed, positive)
    metrics["loss"] = float(totals[-1]) / max(1, len(split))
    return Evaluated(metrics, len(split), time.perf_counter() - started)


def forward(model: Any, batch: Batch) -> torch.Tensor:
    """Return logits, shape (samples, classes)."""
    extra = {} if batch.segments is None else {"token_type_ids": batch.segments}
    logits: torch.Tensor = model(input_ids=batch.tokens, attention_mask=batch.mask, **extra).logits
    return logits
