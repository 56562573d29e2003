"""Learning rate as a pure function of the step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cpufinetune.job.document import Training


def learning_rate(training: Training, step: int, total_steps: int) -> float:
    """Return the rate of the 0-based `step`: linear warm-up, then the job's schedule down to zero."""
    warmup = math.ceil(training.warmup_ratio * total_steps)
    if step < warmup:
        return training.learning_rate * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, total_steps - warmup)
    match training.schedule:
        case "Linear":
            factor = 1 - progress
        case "Cosine":
            factor = 0.5 * (1 + math.cos(math.pi * progress))
        case "Constant":
            factor = 1.0
    return training.learning_rate * max(0.0, factor)
