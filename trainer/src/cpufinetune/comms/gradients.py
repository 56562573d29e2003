"""Gradient averaging over the ranks, and how much of it training has to wait for."""

import contextlib
import time
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

BUCKET_MIB = 25


@dataclass(slots=True)
class GradientSync:
    """A model whose last backward pass of a step averages gradients over the ranks, overlapped with computation."""

    model: Any
    world_size: int
    wrapped: Any = field(init=False)
    _launched: float = 0.0

    def __post_init__(self) -> None:
        """Wrap the model; parameters of rank 0 are sent to all."""
        self.wrapped = self.model
        if self.world_size > 1:
            # Finding unused parameters keeps the bucket plan fixed from the first step on: a resumed run adds in the
            # same order as an undisturbed one, at any world size. It costs a walk over the graph, some ms a step.
            self.wrapped = DistributedDataParallel(
                self.model, bucket_cap_mb=BUCKET_MIB, gradient_as_bucket_view=True, find_unused_parameters=True
            )
            self.wrapped.register_comm_hook(None, self._reduce)
            warnings.filterwarnings("ignore", message="find_unused_parameters=True was specified")

    # DDP compares the annotation, so it must be the class itself.
    def _reduce(
        self,
        state: object,
        bucket: distributed.GradBucket,  # type: ignore[name-defined]  # exported at run time only
    ) -> torch.futures.Future[torch.Tensor]:
        del state
        self._launched = time.perf_counter()
        return allreduce_hook(distributed.group.WORLD, bucket)  # type: ignore[arg-type]

    def accumulate(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of one micro-batch; only the last one of a step communicates."""
        if self.world_size > 1 and not last:
            return self.wrapped.no_sync()  # type: ignore[no-any-return]
        return contextlib.nullcontext()

    def exposed_seconds(self) -> float:
        """Return the time since the last bucket was handed over: what backward had to wait for the network."""
        return time.perf_counter() - self._launched if self.world_size > 1 else 0.0
