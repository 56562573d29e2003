"""Classification metrics from a confusion matrix, which ranks can simply add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Confusion = NDArray[np.int64]
BINARY = 2


def confusion(labels: NDArray[Any], predictions: NDArray[Any], classes: int) -> Confusion:
    """Count pairs; rows are true classes, columns predictions, shape (classes, classes)."""
    pairs = labels.astype(np.int64) * classes + predictions.astype(np.int64)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def measure(counts: Confusion, positive: int = 1) -> dict[str, float]:
    """Return accuracy and macro F1, and for two classes F1 of the `positive` one (0 where undefined)."""
    hits = np.diag(counts).astype(float)
    total = counts.sum(axis=0) + counts.sum(axis=1)
    f1 = np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
    present = total > 0
    metrics = {
        "accuracy": float(hits.sum() / max(1, counts.sum())),
        "macroF1": float(f1[present].mean()) if present.any() else 0.0,
    }
    if len(counts) == BINARY:
        metrics["f1"] = float(f1[positive])
    return metrics
