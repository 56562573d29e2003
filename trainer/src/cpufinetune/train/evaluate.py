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

    from numpy.typing import NDArray

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
    asked: Callable[[], bool] = lambda: False,
) -> Evaluated | None:
    """Measure `model` on `split`; every rank gets the same result, None if some rank was asked to stop meanwhile.

    `model` is the bare one, not its gradient-averaging wrapper; `positive` is the label whose F1 is reported for two
    classes; `precision` gives the autocast context; `beat` and `asked`, which tells whether to stop, are called after
    each batch.
    """
    started = time.perf_counter()
    was_training = model.training
    model.eval()
    own, stopped = np.zeros(classes * classes + 1), False
    with torch.inference_mode():
        for samples in plan_evaluation(split.lengths, BATCH, world_size, rank):
            with precision():
                own += _count(model, split.batch(samples, pad_token), classes)
            beat()
            if stopped := asked():
                break
    model.train(was_training)
    totals = torch.from_numpy(np.append(own, float(stopped)))
    if world_size > 1:
        distributed.all_reduce(totals)
    if totals[-1] > 0:
        return None
    summed = totals[:-2].numpy().round().astype(np.int64).reshape(classes, classes)
    metrics = measure(summed, positive)
    metrics["loss"] = float(totals[-2]) / max(1, len(split))
    return Evaluated(metrics, len(split), time.perf_counter() - started)


def _count(model: Any, batch: Batch, classes: int) -> NDArray[np.float64]:
    """Return the confusion matrix of a batch, flat, and after it the sum of its losses."""
    logits = forward(model, batch).float()
    loss = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum")
    counts = confusion(batch.labels.numpy(), logits.argmax(dim=-1).numpy(), classes)
    return np.append(counts.astype(np.float64).ravel(), float(loss))


def forward(model: Any, batch: Batch) -> torch.Tensor:
    """Return logits, shape (samples, classes)."""
    extra = {} if batch.segments is None else {"token_type_ids": batch.segments}
    logits: torch.Tensor = model(input_ids=batch.tokens, attention_mask=batch.mask, **extra).logits
    return logits
