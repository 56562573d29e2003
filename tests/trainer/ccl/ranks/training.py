"""DistributedDataParallel over oneCCL and over gloo: the same losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from tests.trainer.ccl.ranks.context import Context

STEPS = 50
WIDTH = 256
BUCKET_MIB = 0.25  # makes several buckets of a small model
BATCH = 16


class Model(nn.Module):
    """A few layers, one of which is not always used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])
        self.sometimes = nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 10)

    def forward(self, inputs: torch.Tensor, *, whole: bool) -> torch.Tensor:
        """Return the scores of ten classes."""
        hidden = self.layers(inputs)
        return self.last(self.sometimes(hidden) if whole else hidden)  # type: ignore[no-any-return]


def losses(context: Context, group: Any, *, hook: bool, unused: bool) -> list[float]:
    """Train, and return the sum of all ranks' losses at each step."""
    torch.manual_seed(3)
    model = Model()
    wrapped = DistributedDataParallel(
        model,
        process_group=group,
        bucket_cap_mb=BUCKET_MIB,
        find_unused_parameters=unused,
        gradient_as_bucket_view=True,
    )
    if hook:
        wrapped.register_comm_hook(group, bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(context.rank)
    found = []
    for step in range(STEPS):
        inputs = torch.randn(BATCH, WIDTH, generator=generator)
        labels = torch.randint(0, 10, (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(wrapped(inputs, whole=not unused or step % 3 != 0), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        total = loss.detach().double()
        # Over gloo on either side: not the sum of losses is on trial.
        distributed.all_reduce(total, group=context.gloo)
        found.append(float(total))
    return found


def compare(context: Context, *, hook: bool, unused: bool) -> list[list[float]]:
    """Train over oneCCL and over gloo."""
    groups = (distributed.group.WORLD, context.gloo)
    return [losses(context, group, hook=hook, unused=unused) for group in groups]
