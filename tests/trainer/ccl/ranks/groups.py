"""Groups of some of the ranks, operations that go on beside each other, and what a caller holds of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from tests.trainer.ccl.ranks import data
from torch import distributed

from cpufinetune.comms.ccl import backend

if TYPE_CHECKING:
    from tests.trainer.ccl.ranks.context import Context

MEMBERS = ((0, 1), (2, 3), (0, 3), (1,))
OPERATIONS = 200
LENGTHS = (1, 37, 1237, 20_000, 300_000, 1_500_000)
Check = Callable[[], None]


def make(context: Context) -> dict[str, str]:
    """Form sub-groups; return how they are connected, where this rank is a member."""
    groups = {members: distributed.new_group(list(members), backend="ccl") for members in MEMBERS}
    context.kept["groups"] = {members: group for members, group in groups.items() if context.rank in members}
    return {str(members): backend.topology(group) for members, group in context.kept["groups"].items()}


def drop(context: Context) -> None:
    """Leave the sub-groups."""
    for group in context.kept.pop("groups").values():
        distributed.destroy_process_group(group)


def sub_groups(context: Context) -> None:
    """Every group adds for itself, all at once."""
    started: list[tuple[Any, torch.Tensor, torch.Tensor, object]] = []
    for length in LENGTHS:
        for members, group in context.kept["groups"].items():
            inputs = [data.values(rank, torch.float32, length, seed=length) for rank in members]
            mine = inputs[members.index(context.rank)].clone()
            expected = data.fold(inputs, "SUM")
            started.append((distributed.all_reduce(mine, group=group, async_op=True), mine, expected, members))
    for work, mine, expected, members in reversed(started):
        work.wait()
        data.check(mine, expected, "all_reduce of", members)
    for members, group in context.kept["groups"].items():
        root = members[-1]
        tensor = data.values(context.rank, torch.int64, 100)
        distributed.broadcast(tensor, root, group)
        data.check(tensor, data.values(root, torch.int64, 100), "broadcast of", members)
        distributed.barrier(group)


class Storm:
    """Random operations, the same on all ranks."""

    def __init__(self, context: Context, seed: int) -> None:
        self.context = context
        self.seed = seed

    def start(self, members: tuple[int, ...], group: Any, kind: str, length: int) -> tuple[Any, Check]:
        """Start an operation; return it, and the check of what came of it."""
        self.seed += 1
        inputs = [data.values(rank, torch.float32, length * len(members), seed=self.seed) for rank in members]
        place = members.index(self.context.rank)
        start: Callable[..., tuple[Any, torch.Tensor, torch.Tensor]] = getattr(self, kind)
        work, found, expected = start(inputs, place, members, group)
        return work, lambda: data.check(found, expected, kind, members, length)

    def topology(self, members: tuple[int, ...]) -> str:
        """How a group is connected: only with all ranks it is more than one node with more than one rank."""
        if self.context.topology == "nodes" and len(members) == 2:
            return "shared" if members[0] // 2 == members[1] // 2 else "flat"
        return self.context.topology

    def all_reduce(self, inputs: list[torch.Tensor], place: int, members: tuple[int, ...], group: Any) -> Any:
        """Start a sum."""
        mine = inputs[place].clone()
        expected = data.reduced(inputs, "SUM", self.topology(members))
        return distributed.all_reduce(mine, group=group, async_op=True), mine, expected

    def compressed(self, inputs: list[torch.Tensor], place: int, members: tuple[int, ...], group: Any) -> Any:
        """Start a compressed sum."""
        mine = inputs[place].clone()
        expected = data.compressed(inputs, self.topology(members)) if len(members) > 1 else mine.clone()
        return backend.all_reduce_compressed(mine, group), mine, expected

    def broadcast(self, inputs: list[torch.Tensor], place: int, members: tuple[int, ...], group: Any) -> Any:
        """Start a broadcast."""
        mine = inputs[place].clone()
        return distributed.broadcast(mine, members[-1], group, async_op=True), mine, inputs[-1]

    def all_gather(self, inputs: list[torch.Tensor], place: int, members: tuple[int, ...], group: Any) -> Any:
        """Start a gathering."""
        del members
        found = torch.empty(len(inputs) * inputs[0].numel())
        return distributed.all_gather_into_tensor(found, inputs[place], group, async_op=True), found, torch.cat(inputs)

    def reduce_scatter(self, inputs: list[torch.Tensor], place: int, members: tuple[int, ...], group: Any) -> Any:
        """Start a sum of which everyone gets a part."""
        found = torch.empty(inputs[0].numel() // len(members))
        expected = data.fold(inputs, "SUM").chunk(len(members))[place]
        return distributed.reduce_scatter_tensor(found, inputs[place], group=group, async_op=True), found, expected

    def all_to_all(self, inputs: list[torch.Tensor], place: int, members: tuple[int, ...], group: Any) -> Any:
        """Start an exchange."""
        found = torch.empty_like(inputs[place])
        expected = torch.cat([one.chunk(len(members))[place] for one in inputs])
        return distributed.all_to_all_single(found, inputs[place], group=group, async_op=True), found, expected


def storm(context: Context, seed: int) -> int:
    """Start operations in a random order that is the same on all ranks; wait for them in another on each."""
    choose = random.Random(seed)  # noqa: S311 - a test
    everyone = tuple(range(context.size))
    groups: dict[tuple[int, ...], Any] = {everyone: None, **context.kept.get("groups", {})}
    all_members = (everyone, *(MEMBERS if "groups" in context.kept else ()))
    kinds = ("all_reduce", "compressed", "broadcast", "all_gather", "reduce_scatter", "all_to_all")
    started: list[tuple[Any, Check]] = []
    one = Storm(context, seed)
    for _ in range(OPERATIONS):
        members, kind = choose.choice(all_members), choose.choice(kinds)
        length = choose.choice(LENGTHS[: 5 if choose.random() < 0.9 else 6]) // len(members) + 1
        if members in groups:
            started.append(one.start(members, groups[members], kind, length))
        else:
            one.seed += 1
    random.Random(1000 * seed + context.rank).shuffle(started)  # noqa: S311 - a test
    for work, check in started:
        work.wait()
        check()
    return len(started)


def crossing(context: Context) -> None:
    """Threads that each use a group of their own."""
    errors: list[BaseException] = []

    def run(members: tuple[int, ...], group: Any) -> None:
        try:
            for step in range(30):
                inputs = [data.values(rank, torch.float32, 5000 * (step % 4) + 1, seed=step) for rank in members]
                mine = inputs[members.index(context.rank)].clone()
                distributed.all_reduce(mine, group=group)
                data.check(mine, data.fold(inputs, "SUM"), members, step)
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=run, args=one) for one in context.kept["groups"].items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def futures(context: Context) -> None:
    """Callbacks run with the result; `result` and `wait` give the same."""
    tensor = torch.full((1000,), float(context.rank + 1))
    total = context.size * (context.size + 1) / 2
    called: list[float] = []
    work: Any = distributed.all_reduce(tensor, async_op=True)

    def note(future: Any) -> torch.Tensor:
        (found,) = future.value()
        called.append(float(found[0]))
        return found / 2  # type: ignore[no-any-return]

    chained = work.get_future().then(note)
    halved = chained.wait()
    assert called == [total]
    assert halved.eq(total / 2).all()
    work.wait()
    assert work.is_completed()
    (result,) = work.result()
    assert result.data_ptr() == tensor.data_ptr()
    # A callback that is added when all is over runs at once, and one that raises does not harm the group.
    (late,) = work.get_future().then(lambda future: future.value()).wait()
    assert late.eq(total).all()
    failing: Any = distributed.all_reduce(tensor.clone(), async_op=True)
    raised = failing.get_future().then(lambda _: 1 / 0)
    try:
        raised.wait()
    except (ZeroDivisionError, RuntimeError) as error:
        assert "division" in str(error)  # noqa: PT017 - no pytest in a rank
    else:
        raise AssertionError("the callback's error is lost")
    distributed.barrier()


def dropped(context: Context) -> None:
    """Nobody waits, nobody keeps the tensors: the group does."""
    for _ in range(50):
        distributed.all_reduce(torch.ones(10_000), async_op=True)
    mine = torch.ones(7)
    distributed.all_reduce(mine)
    assert mine.eq(context.size).all()


def named(context: Context) -> None:
    """Run operations that a profiler looks at."""
    tensor = torch.ones(context.size)
    distributed.all_reduce(tensor)
    distributed.broadcast(tensor, 0)
    backend.all_reduce_compressed(tensor).wait()
    distributed.all_gather_into_tensor(torch.empty(context.size**2), tensor)
    distributed.all_to_all_single(torch.empty(context.size), tensor)


def names(context: Context) -> list[str]:
    """Return what a profiler calls the operations; it takes seconds to start, so that one rank must do."""
    if context.rank != 0:
        named(context)
        return []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        named(context)
    return sorted({event.key for event in profile.key_averages() if event.key.startswith("ccl:")})


def batched(context: Context) -> None:
    """Transfers that belong together, and collectives that are coalesced."""
    after, before = (context.rank + 1) % context.size, (context.rank - 1) % context.size
    mine, found = data.values(context.rank, torch.float32, 100_000), torch.empty(100_000)
    calls: Any = [(distributed.irecv, found, before), (distributed.isend, mine, after)]
    operations = [distributed.P2POp(*call) for call in calls]
    for work in distributed.batch_isend_irecv(operations):
        work.wait()
    data.check(found, data.values(before, torch.float32, 100_000), "batched")
    own: Any = distributed.group.WORLD
    lengths = (5, 0, 7000)
    inputs = [data.values(context.rank, torch.float32, length) for length in lengths]
    outputs = [torch.empty(length * context.size) for length in lengths]
    own.allgather_into_tensor_coalesced(outputs, inputs).wait()
    for output, length in zip(outputs, lengths, strict=True):
        data.check(output, torch.cat(data.rows(context, torch.float32, length)), "all_gather coalesced")
    parts = [torch.empty(length) for length in lengths]
    own.reduce_scatter_tensor_coalesced(parts, outputs).wait()
    for part, output in zip(parts, outputs, strict=True):
        expected = data.reduced([output] * context.size, "SUM").reshape(context.size, -1)[context.rank]
        data.check(part, expected, "reduce_scatter coalesced")


def early(context: Context) -> None:
    """Data that is waited for before a collective, and sent after it."""
    if context.rank > 1:
        distributed.all_reduce(torch.ones(100_000))
        return
    found, mine = torch.empty(50_000), data.values(context.rank, torch.float32, 50_000)
    work: Any = distributed.irecv(found, 0) if context.rank == 1 else None
    total = torch.ones(100_000)
    distributed.all_reduce(total)
    assert total.eq(context.size).all()
    if context.rank == 0:
        distributed.send(mine, 1)
    else:
        work.wait()
        data.check(found, data.values(0, torch.float32, 50_000), "sent after a collective")
