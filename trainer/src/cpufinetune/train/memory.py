"""How much memory a rank needs, measured on the model itself, and the micro-batch that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpufinetune.job.document import Spec
    from cpufinetune.train.settings import RankSettings


def micro_batch_size(spec: Spec, model: Any, settings: RankSettings) -> int:
    """Return samples a micro-batch: the job's own, or the whole share of a rank."""
    share = -(-spec.training.batch_size // settings.world_size)
    return min(spec.training.micro_batch_size or share, share)
