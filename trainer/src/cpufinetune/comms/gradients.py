"""Gradient averaging over the ranks, and how much of it training has to wait for."""

import contextlib
import time
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from cpufinetune.comms.ccl import backend
from cpufinetune.comms.choice import OURS, SINGLE, Choice
from cpufinetune.comms.network import Network, measure

# Where the order of additions depends on a value's place in its bucket, the buckets must be the same in every attempt.
FIXED_BUCKET_MIB = 25


@dataclass(slots=True)
class GradientSync:
    """A model whose last backward pass of a step averages gradients over the ranks, overlapped with computation.

    The word embeddings go a way of their own. Their gradient is the largest by far (half of MiniLM's bytes), comes
    last in backward, where nothing is left to hide it behind, and is zero but for the tokens of the batch. All ranks
    know these tokens, so only their rows are averaged.
    """

    model: Any
    world_size: int
    choice: Choice = SINGLE
    compress: bool = False
    network: Network | None = field(init=False, default=None)
    bucket_mib: int = field(init=False, default=FIXED_BUCKET_MIB)
    wrapped: Any = field(init=False)
    embeddings: torch.Tensor | None = field(init=False, default=None)
    _launched: float = 0.0

    def __post_init__(self) -> None:
        """Wrap the model; parameters of rank 0 are sent to all."""
        self.wrapped = self.model
        if self.world_size == 1:
            return
        name, self.embeddings = word_embeddings(self.model)
        if self.embeddings is not None:
            ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model  # noqa: SLF001
            ignore(self.model, [name])
            distributed.broadcast(self.embeddings.detach(), src=0)
        if self.choice.binding == OURS:
            # Adds in the order of ranks wherever a value is: buckets may follow the network.
            self.network = measure()
            self.bucket_mib = self.network.bucket_mib()
        # Finding unused parameters keeps the bucket plan fixed from the first step on: a resumed run adds in the
        # same order as an undisturbed one, at any world size. It costs a walk over the graph, some ms a step.
        # Buffers of these models are tables that never change: sent once, not before every step.
        for buffer in self.model.buffers():
            distributed.broadcast(buffer, src=0)
        with warnings.catch_warnings():
            # Newer versions call the argument by another name, older ones know only this one.
            warnings.simplefilter("ignore", FutureWarning)
            self.wrapped = DistributedDataParallel(
                self.model,
                bucket_cap_mb=self.bucket_mib,
                gradient_as_bucket_view=True,
                find_unused_parameters=True,
                broadcast_buffers=False,
            )
        self.wrapped.register_comm_hook(None, self._reduce)

    # DDP compares the annotation, so it must be the class itself.
    def _reduce(
        self,
        state: object,
        bucket: distributed.GradBucket,  # type: ignore[name-defined]  # exported at run time only
    ) -> torch.futures.Future[torch.Tensor]:
        del state
        self._launched = time.perf_counter()
        if not self.compress:
            return allreduce_hook(distributed.group.WORLD, bucket)  # type: ignore[arg-type]
        if self.choice.binding != OURS:
            return bf16_compress_hook(distributed.group.WORLD, bucket)  # type: ignore[arg-type]
        work = backend.all_reduce_compressed(bucket.buffer().div_(self.world_size))
        return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]

    def accumulate(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of one micro-batch; only the last one of a step communicates."""
        if self.world_size > 1 and not last:
            return self.wrapped.no_sync()  # type: ignore[no-any-return]
        return contextlib.nullcontext()

    def finish(self, tokens: torch.Tensor) -> float:
        """Average what backward did not; return the seconds that training had to wait for the network.

        Args:
            tokens: ids that occur in the whole batch, over all ranks, each once, in the same order on every rank.
        """
        if self.world_size == 1:
            return 0.0
        if self.embeddings is not None and self.embeddings.grad is not None:
            rows = self.embeddings.grad.index_select(0, tokens)
            self._sum(rows)
            self.embeddings.grad.index_copy_(0, tokens, rows.div_(self.world_size))
        return time.perf_counter() - self._launched

    def _sum(self, rows: torch.Tensor) -> None:
        if self.compress and self.choice.binding == OURS:
            backend.all_reduce_compressed(rows).wait()
        elif self.compress:
            short = rows.to(torch.bfloat16)
            distributed.all_reduce(short)
            rows.copy_(short)
        else:
            distributed.all_reduce(rows)

    def describe(self) -> dict[str, object]:
        """Return what the report says of the gradients' way: sizes in MiB, times in seconds."""
        if self.world_size == 1:
            return {}
        found: dict[str, object] = {
            "bucketMiB": self.bucket_mib,
            "compression": self._compression(),
        }
        if self.network is not None:
            found["delaySeconds"] = self.network.delay_seconds
            found["bytesPerSecond"] = self.network.bytes_per_second
            found["topology"] = backend.topology()
        if self.choice.environment:
            found["environment"] = self.choice.environment
        return found

    def _compression(self) -> str:
        if not self.compress:
            return "None"
        if self.choice.binding != OURS:
            return "BFloat16, rounded after each addition"
        if "over oneCCL" not in backend.topology():
            return "None, nothing leaves the node"
        return "BFloat16, added in float32 and rounded once"


def word_embeddings(model: Any) -> tuple[str, torch.Tensor | None]:
    """Return name and weight of a trained table of word embeddings that nothing else uses."""
    module: object = model.get_input_embeddings()
    if not isinstance(module, torch.nn.Embedding) or not module.weight.requires_grad:
        return "", None
    table = module.weight
    names = [name for name, weight in model.named_parameters(remove_duplicate=False) if weight is table]
    return (str(names[0]), table) if len(names) == 1 else ("", None)
