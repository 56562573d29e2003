"""Operations that reduce, for every type and size, against sums in the order of ranks and against gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tests.trainer.ccl.ranks import data
from torch import distributed
from torch.distributed import ReduceOp

from cpufinetune.comms.ccl import backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.trainer.ccl.ranks.context import Context

# AVG is not compared with gloo, which refuses it or, in older versions, takes it for SUM.
REDUCTIONS = ("SUM", "AVG", "MIN", "MAX", "PRODUCT")
# Where the ways part: 16 KiB over all ranks, pieces of 256 KiB, blocks and chunks of 4 MiB.
EDGES = (
    1023,
    1024,
    1025,
    2047,
    2048,
    2049,
    65535,
    65536,
    65537,
    data.MIB - 1,
    data.MIB,
    data.MIB + 1,
    3 * data.MIB + 5,
)


def cases(*, large: bool = False) -> list[tuple[torch.dtype, int]]:
    """Every type with every size."""
    found = [(dtype, count) for dtype in data.DTYPES for count in data.counts(dtype)]
    if large:
        found += [(dtype, data.LARGE // dtype.itemsize) for dtype in (torch.float32, torch.bfloat16)]
    return found


def reductions(dtype: torch.dtype) -> list[str]:
    """Return the reductions that a type allows."""
    return [name for name in REDUCTIONS if name != "AVG" or dtype in data.FLOATS]


def by_gloo(context: Context, tensor: torch.Tensor, run: Callable[[torch.Tensor, Any], Any]) -> torch.Tensor | None:
    """Return what gloo makes of it; None where gloo has no such operation."""
    if tensor.numel() == 0:
        return None
    try:
        return torch.as_tensor(run(tensor, context.gloo))
    except (RuntimeError, ValueError, TypeError):
        return None


def against_gloo(
    context: Context, run: Callable[..., Any], mine: torch.Tensor, expected: torch.Tensor, *what: object
) -> int:
    """Compare with gloo; return 1 if gloo has the operation."""
    found = by_gloo(context, mine.clone(), run)
    if found is None:
        return 0
    data.check_near(found, expected, *what, mine.dtype, mine.numel())
    return 1


def all_reduce(context: Context) -> dict[str, int]:
    """Every reduction of every type and size; return how many were compared with gloo too."""
    done = {"exact": 0, "gloo": 0}
    for dtype, count in cases(large=True):
        inputs = data.rows(context, dtype, count)
        big = count * dtype.itemsize > data.MIB
        for name in ["SUM"] if big else reductions(dtype):
            op = getattr(ReduceOp, name)

            def run(tensor: torch.Tensor, group: Any, op: Any = op) -> torch.Tensor:
                distributed.all_reduce(tensor, op, group)
                return tensor

            expected = data.reduced(inputs, name, context.topology)
            mine = inputs[context.rank]
            data.check(run(mine.clone(), None), expected, "all_reduce", name, dtype, count)
            done["exact"] += 1
            if name != "AVG" and not big:
                done["gloo"] += against_gloo(context, run, mine, expected, "all_reduce", name)
    return done


def edges(context: Context) -> None:
    """Sizes at which messages are divided."""
    for dtype in (torch.float32, torch.bfloat16):
        longest = data.rows(context, dtype, EDGES[-1])
        for count in EDGES:
            inputs = [one[:count] for one in longest]
            mine = inputs[context.rank].clone()
            distributed.all_reduce(mine)
            data.check(mine, data.reduced(inputs, "SUM", context.topology), dtype, count)


def positions(context: Context) -> None:
    """The same values at other places of other messages give the same bits."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        values = data.values(context.rank, dtype, data.ODD)
        reference = values.clone()
        distributed.all_reduce(reference)
        for offset, length in ((1, 1300), (63, 70_001), (500_009, 1 << 20), (1_048_000, 2_500_000)):
            message = data.values(context.rank, dtype, length, seed=1)
            message[offset : offset + data.ODD] = values
            distributed.all_reduce(message)
            data.check(message[offset : offset + data.ODD], reference, "at", offset, "of", length)
        # A tensor that begins anywhere in memory.
        view = torch.cat([values[:3], values])[3:]
        distributed.all_reduce(view)
        data.check(view, reference, "a view")


def special(context: Context) -> None:
    """Infinities, NaN, zeros with a sign and numbers below the normal ones."""
    smallest = 2.0**-149
    columns = [
        (float("inf"), 1.0, 2.0, 3.0),
        (float("inf"), float("-inf"), 0.0, 0.0),
        (float("nan"), 1.0, 1.0, 1.0),
        (1.0, float("nan"), 1.0, 1.0),
        (-0.0, -0.0, -0.0, -0.0),
        (smallest, smallest, smallest, smallest),
        (3.4e38, 3.4e38, 0.0, 0.0),
        (65504.0, 65504.0, -65504.0, -65504.0),
    ]
    for dtype in data.FLOATS:
        inputs = [torch.tensor(row).to(dtype) for row in list(zip(*columns, strict=True))[: context.size]]
        mine = inputs[context.rank].clone()
        distributed.all_reduce(mine)
        expected = data.reduced(inputs, "SUM", context.topology)
        nan = expected.isnan()
        assert torch.equal(mine.isnan(), nan), (dtype, mine, expected)
        data.check(mine[~nan], expected[~nan], "special", dtype)


def coalesced(context: Context) -> None:
    """Several tensors in one call."""
    for name in ("SUM", "MAX", "AVG"):
        inputs = [
            [data.values(rank, torch.float32, count) for count in (1, 0, 1237, 100_000)] for rank in range(context.size)
        ]
        mine = [one.clone() for one in inputs[context.rank]]
        distributed.all_reduce_coalesced(mine, getattr(ReduceOp, name))
        for found, *parts in zip(mine, *inputs, strict=True):
            data.check(found, data.reduced(parts, name, context.topology), "coalesced", name)


def reduce(context: Context) -> dict[str, int]:
    """To each rank in turn; the tensors of the others stay as they are."""
    done = {"exact": 0, "gloo": 0}
    for number, (dtype, count) in enumerate(cases()):
        root = number % context.size
        inputs = data.rows(context, dtype, count)
        for name in reductions(dtype):
            op = getattr(ReduceOp, name)

            def run(tensor: torch.Tensor, group: Any, op: Any = op, to: int = root) -> torch.Tensor:
                distributed.reduce(tensor, to, op, group)
                return tensor

            mine = inputs[context.rank]
            whole = data.reduced(inputs, name, context.topology)
            data.check(run(mine.clone(), None), whole if root == context.rank else mine, "reduce", name, dtype, count)
            done["exact"] += 1
            # Gloo leaves partial sums in the tensors of the others.
            found = None if name == "AVG" else by_gloo(context, mine.clone(), run)
            if found is not None and root == context.rank:
                data.check_near(found, whole, "reduce", name, dtype, count)
                done["gloo"] += 1
    return done


def reduce_scatter(context: Context) -> dict[str, int]:
    """A list, a tensor and several tensors; always in the order of ranks."""
    done = {"exact": 0, "gloo": 0}
    for dtype, count in cases():
        inputs = data.rows(context, dtype, count * context.size)
        mine = inputs[context.rank]
        for name in reductions(dtype) if count <= data.ODD else ["SUM"]:
            op = getattr(ReduceOp, name)
            expected = data.reduced(inputs, name).chunk(context.size)[context.rank] if count else mine
            found = torch.empty(count, dtype=dtype)
            distributed.reduce_scatter_tensor(found, mine, op)
            data.check(found, expected, "reduce_scatter_tensor", name, dtype, count)
            found = torch.empty(count, dtype=dtype)
            parts = list(mine.chunk(context.size)) if count else [mine] * context.size
            distributed.reduce_scatter(found, parts, op)
            data.check(found, expected, "reduce_scatter", name, dtype, count)

            def run(tensor: torch.Tensor, group: Any, op: Any = op, like: torch.Tensor = found) -> torch.Tensor:
                out = torch.empty_like(like)
                distributed.reduce_scatter_tensor(out, tensor, op, group)
                return out

            done["exact"] += 2
            # Older versions of gloo take every reduction for SUM here.
            if name == "SUM":
                done["gloo"] += against_gloo(context, run, mine, expected, "reduce_scatter", name)
    return done


def compressed(context: Context) -> None:
    """Sums that cross the network as bfloat16."""
    for count in (*data.counts(torch.float32), *EDGES, data.LARGE // 4):
        inputs = data.rows(context, torch.float32, count, seed=2)
        mine = inputs[context.rank].clone()
        backend.all_reduce_compressed(mine).wait()
        data.check(mine, data.compressed(inputs, context.topology), "compressed", count)
    shaped = data.values(context.rank, torch.float32, 60).reshape(3, 4, 5)
    backend.all_reduce_compressed(shaped).wait()
    inputs = data.rows(context, torch.float32, 60)
    data.check(shaped.reshape(-1), data.compressed(inputs, context.topology), "compressed, three dimensions")
