"""Operations that move data, for every type and size, against what must arrive and against gloo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tests.trainer.ccl.ranks import data
from tests.trainer.ccl.ranks.reductions import cases
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.trainer.ccl.ranks.context import Context

Tensors = list[torch.Tensor]


def small(dtype: torch.dtype, count: int) -> bool:
    """Say whether gloo is asked too: it does not care for empty tensors, and is slow with large ones."""
    return 0 < count <= data.MIB // dtype.itemsize


def compare(
    context: Context, run: Callable[[Any], Tensors], expected: Tensors, *what: object, gloo: bool = True
) -> int:
    """Run over oneCCL and over gloo; return 1 if gloo has the operation."""
    found = run(None)
    assert len(found) == len(expected), what
    for one, other in zip(found, expected, strict=True):
        data.check(one, other, *what)
    if not gloo:
        return 0
    try:
        found = run(context.gloo)
    except (RuntimeError, ValueError, TypeError):
        return 0
    for one, other in zip(found, expected, strict=True):
        data.check(one, other, "gloo", *what)
    return 1


def broadcast(context: Context) -> int:
    """From each rank in turn."""
    done = 0
    for number, (dtype, count) in enumerate(cases(large=True)):
        root = number % context.size
        expected = data.values(root, dtype, count)
        mine = data.values(context.rank, dtype, count)

        def run(group: Any, mine: torch.Tensor = mine, root: int = root) -> Tensors:
            tensor = mine.clone()
            distributed.broadcast(tensor, root, group)
            return [tensor]

        done += compare(context, run, [expected], "broadcast", dtype, count, gloo=small(dtype, count))
    return done


def all_gather(context: Context) -> int:
    """Into a list, and into one tensor."""
    done = 0
    for dtype, count in cases(large=True):
        expected = data.rows(context, dtype, count)

        def into_list(group: Any, inputs: Tensors = expected) -> Tensors:
            found = [torch.empty_like(one) for one in inputs]
            distributed.all_gather(found, inputs[context.rank], group)
            return found

        def into_tensor(group: Any, inputs: Tensors = expected) -> Tensors:
            found = torch.empty(len(inputs) * inputs[0].numel(), dtype=inputs[0].dtype)
            distributed.all_gather_into_tensor(found, inputs[context.rank], group)
            return list(found.reshape(len(inputs), -1))

        done += compare(context, into_list, expected, "all_gather", dtype, count, gloo=small(dtype, count))
        done += compare(
            context, into_tensor, expected, "all_gather_into_tensor", dtype, count, gloo=small(dtype, count)
        )
    return done


def gather(context: Context) -> int:
    """To each rank in turn."""
    done = 0
    for number, (dtype, count) in enumerate(cases()):
        root = number % context.size
        inputs = data.rows(context, dtype, count)
        expected = inputs if root == context.rank else []

        def run(group: Any, inputs: Tensors = inputs, expected: Tensors = expected, root: int = root) -> Tensors:
            found = [torch.empty_like(one) for one in expected]
            distributed.gather(inputs[context.rank], found or None, root, group)
            return found

        done += compare(context, run, expected, "gather", dtype, count, gloo=small(dtype, count))
    return done


def scatter(context: Context) -> int:
    """From each rank in turn."""
    done = 0
    for number, (dtype, count) in enumerate(cases()):
        root = number % context.size
        inputs = [data.values(root, dtype, count, seed=peer) for peer in range(context.size)]

        def run(group: Any, inputs: Tensors = inputs, root: int = root) -> Tensors:
            found = torch.empty_like(inputs[0])
            distributed.scatter(found, inputs if root == context.rank else None, root, group)
            return [found]

        done += compare(context, run, [inputs[context.rank]], "scatter", dtype, count, gloo=small(dtype, count))
    return done


def splits(rank: int, peer: int, count: int) -> int:
    """How many elements a rank sends to another: none of some."""
    return 0 if (rank + peer) % 3 == 2 else count // (1 + (2 * rank + peer) % 4)


def all_to_all(context: Context) -> int:
    """Lists of even and uneven tensors, and one tensor with and without split sizes."""
    done = 0
    mine = context.rank
    for dtype, count in cases():
        for uneven in (False, True):
            sizes = [
                [splits(rank, peer, count) if uneven else count for peer in range(context.size)]
                for rank in range(context.size)
            ]
            inputs = [data.values(mine, dtype, length, seed=peer) for peer, length in enumerate(sizes[mine])]
            expected = [data.values(peer, dtype, sizes[peer][mine], seed=mine) for peer in range(context.size)]

            def lists(group: Any, inputs: Tensors = inputs, expected: Tensors = expected) -> Tensors:
                found = [torch.empty_like(one) for one in expected]
                distributed.all_to_all(found, inputs, group)
                return found

            def single(group: Any, inputs: Tensors = inputs, expected: Tensors = expected) -> Tensors:
                found = torch.empty_like(torch.cat(expected))
                incoming, outgoing = ([one.numel() for one in tensors] for tensors in (expected, inputs))
                distributed.all_to_all_single(found, torch.cat(inputs), incoming, outgoing, group)
                return list(torch.split(found, incoming))

            def plain(group: Any, inputs: Tensors = inputs, expected: Tensors = expected) -> Tensors:
                found = torch.empty_like(torch.cat(expected))
                distributed.all_to_all_single(found, torch.cat(inputs), group=group)
                return list(torch.split(found, [one.numel() for one in expected]))

            for run in (lists, single, *([] if uneven else [plain])):
                done += compare(
                    context, run, expected, run.__name__, dtype, count, uneven, gloo=count > 1 and small(dtype, count)
                )
    return done


def pairs(context: Context) -> int:
    """Each rank sends to the next, while it receives from the one before; and one transfer after the other."""
    done = 0
    after, before = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    for dtype, count in [*cases(), (torch.float32, 2 * data.MIB)]:
        mine, expected = data.values(context.rank, dtype, count), data.values(before, dtype, count)

        def beside(group: Any, mine: torch.Tensor = mine, expected: torch.Tensor = expected) -> Tensors:
            found = torch.empty_like(expected)
            works: Any = [distributed.isend(mine, after, group), distributed.irecv(found, before, group)]
            for work in works:
                work.wait()
            return [found]

        def in_turn(group: Any, mine: torch.Tensor = mine, expected: torch.Tensor = expected) -> Tensors:
            found = torch.empty_like(expected)
            if context.rank % 2 == 0:
                distributed.send(mine, after, group)
                distributed.recv(found, before, group)
            else:
                distributed.recv(found, before, group)
                distributed.send(mine, after, group)
            return [found]

        done += compare(context, beside, [expected], "isend", dtype, count, gloo=small(dtype, count))
        done += compare(context, in_turn, [expected], "send", dtype, count, gloo=small(dtype, count))
    return done


def one_way(context: Context) -> None:
    """Many transfers from one rank to another, of various lengths, between collectives of all."""
    for step in range(20):
        lengths = [1, 5000 * step, 3, 70_000]
        if context.rank == 0:
            works = [distributed.isend(data.values(0, torch.float32, n, seed=step), 1) for n in lengths]
        else:
            found = [torch.empty(n) for n in lengths]
            works = [distributed.irecv(one, 0) for one in found] if context.rank == 1 else []
        total = torch.full((1000,), float(context.rank))
        distributed.all_reduce(total)
        assert total.eq(context.size * (context.size - 1) / 2).all(), step
        for work in works:
            assert work is not None
            work.wait()
        if context.rank == 1:
            for one, length in zip(found, lengths, strict=True):
                data.check(one, data.values(0, torch.float32, length, seed=step), "one way", step)


def objects(context: Context) -> None:
    """Python objects, which are of other lengths on each rank."""
    found: list[Any] = [None] * context.size
    distributed.all_gather_object(found, {"rank": context.rank, "text": "x" * 1000 * context.rank})
    assert found == [{"rank": rank, "text": "x" * 1000 * rank} for rank in range(context.size)]
    several: list[Any] = [1, "two", {"three": 3}] if context.rank == 1 else [None, None, None]
    distributed.broadcast_object_list(several, src=1)
    assert several == [1, "two", {"three": 3}]
    gathered: list[Any] | None = [None] * context.size if context.rank == 0 else None
    distributed.gather_object((context.rank,), gathered, dst=0)
    assert gathered == ([(rank,) for rank in range(context.size)] if context.rank == 0 else None)
    own: list[Any] = [None]
    distributed.scatter_object_list(
        own, [f"for {rank}" for rank in range(context.size)] if context.rank == 0 else None, src=0
    )
    assert own == [f"for {context.rank}"]


def barrier(context: Context) -> None:
    """Nobody passes before all have come: numbers in the store tell."""
    for step in range(5):
        context.store.add(f"come-{step}", 1)
        distributed.barrier()
        assert context.store.add(f"come-{step}", 0) == context.size


def other_types(context: Context) -> None:
    """What is only moved may be of any type."""
    for dtype in (torch.complex64, torch.float8_e4m3fn):
        tensor = data.values(context.rank, torch.float32, 64).to(dtype)
        distributed.broadcast(tensor, 1)
        data.check(tensor.view(torch.uint8), data.values(1, torch.float32, 64).to(dtype).view(torch.uint8), dtype)
    for shape in ((), (0, 3), (2, 0), (3, 4, 5)):
        tensor = torch.full(shape, float(context.rank))
        distributed.broadcast(tensor, 1)
        assert tensor.eq(1.0).all(), shape
        distributed.all_reduce(tensor)
        assert tensor.eq(float(context.size)).all(), shape
