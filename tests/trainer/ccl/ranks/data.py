"""Values that every rank can work out for all others, and what reductions of them must give, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tests.trainer.ccl.ranks.context import Context

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
ODD = 1237
MIB = 1 << 20
LARGE = 25 * MIB
# What gloo may differ by: it adds in an order of its own, and rounds halves after every addition.
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-2, torch.bfloat16: 2e-1}
PER_NODE = 2

Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def counts(dtype: torch.dtype) -> tuple[int, ...]:
    """Elements of the messages that every operation is tried with."""
    return (0, 1, ODD, MIB // dtype.itemsize)


def values(rank: int, dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Random values of a rank; products of four of them do not overflow."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype in FLOATS:
        # Float64 has digits that float32 has not.
        return torch.randn(count, generator=generator, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(dtype)
    lowest = 0 if dtype == torch.uint8 else -3
    return torch.randint(lowest, 4, (count,), generator=generator, dtype=dtype)


def rows(context: Context, dtype: torch.dtype, count: int, seed: int = 0) -> list[torch.Tensor]:
    """Return the values of all ranks."""
    return [values(rank, dtype, count, seed) for rank in range(context.size)]


NUMBERS: dict[str, Combine] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}
TRUTHS: dict[str, Combine] = {
    "SUM": torch.logical_or,
    "PRODUCT": torch.logical_and,
    "MIN": torch.logical_and,
    "MAX": torch.logical_or,
}


def fold(inputs: list[torch.Tensor], reduction: str) -> torch.Tensor:
    """Combine in the order of ranks; halves in float32, rounded to nearest-even once."""
    dtype = inputs[0].dtype
    combine = (TRUTHS if dtype == torch.bool else NUMBERS)[reduction]
    wide = torch.float32 if dtype in HALVES else dtype
    total = inputs[0].to(wide)
    for one in inputs[1:]:
        total = combine(total, one.to(wide))
    return total.to(dtype)


def average(total: torch.Tensor, size: int) -> torch.Tensor:
    """Divide a sum, halves in float32."""
    wide = torch.float32 if total.dtype in HALVES else total.dtype
    return (total.to(wide) / size).to(total.dtype)


def reduced(inputs: list[torch.Tensor], reduction: str, topology: str = "flat") -> torch.Tensor:
    """Return what all ranks together must give; ranks of a node come first."""
    size = len(inputs)
    if topology == "nodes":
        inputs = [fold(inputs[first : first + PER_NODE], reduction) for first in range(0, size, PER_NODE)]
    total = fold(inputs, reduction)
    return average(total, size) if reduction == "AVG" else total


def compressed(inputs: list[torch.Tensor], topology: str) -> torch.Tensor:
    """Return what a compressed sum must give: values that cross the network are bfloat16."""
    if topology == "shared":
        return fold(inputs, "SUM")
    if topology == "nodes":
        inputs = [fold(inputs[first : first + PER_NODE], "SUM") for first in range(0, len(inputs), PER_NODE)]
    return fold([one.bfloat16() for one in inputs], "SUM").float()


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two tensors have the same bits."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def check(found: torch.Tensor, expected: torch.Tensor, *what: object) -> None:
    """Fail with the first element that differs."""
    if same(found, expected):
        return
    text = f"{' '.join(map(str, what))}: {found.dtype} {list(found.shape)}, expected {list(expected.shape)}"
    if found.shape == expected.shape:
        wrong = (found != expected).nonzero()
        first = tuple(wrong[0].tolist()) if len(wrong) else ()
        text += f"; {len(wrong)} differ, first at {first}: {found[first]!r} instead of {expected[first]!r}"
    raise AssertionError(text)


def check_near(found: torch.Tensor, expected: torch.Tensor, *what: object) -> None:
    """Fail if gloo gives something else."""
    tolerance = TOLERANCES.get(expected.dtype, 0.0)
    # Where sums cancel the error is one of the summands.
    near = torch.allclose(found.double(), expected.double(), rtol=tolerance, atol=tolerance)
    assert near, f"gloo differs: {' '.join(map(str, what))}"
