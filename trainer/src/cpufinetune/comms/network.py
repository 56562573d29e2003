"""How fast the ranks' network is, and how large a message must be to make good use of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import torch
from torch import distributed

SMALL, LARGE = 1 << 12, 4 << 20  # bytes: one costs its delay, the other the bandwidth
TRIES = 5
# The delay of a message may cost this share of its transfer.
DELAY_SHARE = 0.05
SMALLEST_MIB, LARGEST_MIB = 4, 64


@dataclass(frozen=True, slots=True)
class Network:
    """What an all-reduce costs: `delay_seconds` for the call, and then `bytes_per_second`."""

    delay_seconds: float
    bytes_per_second: float

    def bucket_mib(self) -> int:
        """Return the size of gradient buckets in MiB.

        Small ones start early and leave little to wait for after backward; too small ones spend their time on delays.
        """
        wanted = self.delay_seconds / DELAY_SHARE * self.bytes_per_second / (1 << 20)
        return round(min(max(wanted, SMALLEST_MIB), LARGEST_MIB))


def measure() -> Network:
    """Time all-reduces of two sizes; collective, with the same answer on all ranks."""
    small, large = _seconds(SMALL), _seconds(LARGE)
    # The slowest rank's view, for all of them must use buckets of one size.
    slowest = torch.tensor([small, large], dtype=torch.float64)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    delay, whole = slowest.tolist()
    return Network(delay, LARGE / max(whole - delay, whole / 10))


def _seconds(size: int) -> float:
    data = torch.zeros(size // 4)
    distributed.all_reduce(data)
    times = []
    for _ in range(TRIES):
        distributed.barrier()
        started = time.perf_counter()
        distributed.all_reduce(data)
        times.append(time.perf_counter() - started)
    return median(times)
