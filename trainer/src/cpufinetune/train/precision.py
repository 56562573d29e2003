"""Which number format the matrix products run in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from cpufinetune.job.document import Precision


@dataclass(frozen=True, slots=True)
class Chosen:
    """The format in use and why."""

    name: str
    reason: str

    def context(self) -> AbstractContextManager[Any]:
        """Return the autocast context of a forward pass."""
        if self.name == "BFloat16":
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return nullcontext()


def choose(wanted: Precision, *, native_bf16: bool) -> Chosen:
    """Pick bf16 only where the CPU multiplies it natively: elsewhere it is emulated and several times slower."""
    if wanted != "Auto":
        slow = wanted == "BFloat16" and not native_bf16
        return Chosen(wanted, "asked for" + (", although this CPU only emulates it" if slow else ""))
    if native_bf16:
        return Chosen("BFloat16", "the CPU has AVX512_BF16 or AMX")
    return Chosen("Float32", "the CPU has neither AVX512_BF16 nor AMX")
