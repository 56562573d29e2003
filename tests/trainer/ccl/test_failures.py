"""Whatever happens to a rank, the others say within seconds what it was."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

SOON = 10.0  # seconds
AT_ONCE = 4.0
SHORT = 6.0  # what a group waits for a peer, to form and in an operation
UP = SHORT + 1.0
SILENCE = 12.0  # a stopped rank 0 takes the store along, whose silence is noticed after 8
WITHIN_CALL = 0.5
LATE = 5.0  # a rank that has left is noticed after 2
PAIRS = ((2, "flat"), (2, "shared"))


@pytest.fixture
def started(start: Any) -> Any:
    """Connected ranks of several worlds: `started([(2, "flat")], timeout=SHORT)`."""
    return lambda shapes, **changes: [start(*shape).join(gloo=False, **changes) for shape in shapes]


def together(worlds: list[Any], call: str, **arguments: Any) -> list[tuple[Any, dict[int, Any]]]:
    """Make a call in several worlds at once, since it takes seconds; return each with its answers."""
    with ThreadPoolExecutor(len(worlds)) as pool:
        return list(zip(worlds, pool.map(lambda world: world.attempt(call, **arguments), worlds), strict=True))


def later(seconds: float, action: Any) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


def others(world: Any, rank: int) -> list[int]:
    return [number for number in range(world.size) if number != rank]


def assert_told(answers: dict[int, Any], rank: int, seconds: float) -> None:
    for number, answer in answers.items():
        assert answer.get("error") == "DistBackendError", (number, answer)
        assert f"rank {rank} (" in answer["text"], (number, answer)
        assert answer["seconds"] < seconds + WITHIN_CALL, (number, answer)


def assert_ends_well(world: Any, ranks: list[int]) -> None:
    """The ranks can leave a group that has failed, and their processes end by themselves."""
    answers = world.attempt("context.leave", only=ranks)
    assert all("error" not in answer and answer["seconds"] < AT_ONCE for answer in answers.values()), answers
    since = time.monotonic()
    assert world.end(ranks) == [0] * len(ranks), world.ranks[ranks[0]].output()
    assert time.monotonic() - since < SOON


@pytest.mark.parametrize(
    ("victim", "shapes"),
    [
        pytest.param(0, PAIRS, id="rank 0, which keeps the store"),
        pytest.param(1, PAIRS, id="rank 1"),
        pytest.param(1, [(4, "nodes")], id="rank 1 of two nodes"),
    ],
)
def test_a_rank_that_is_killed_is_named(started: Any, left_behind: Any, victim: int, shapes: Any) -> None:
    worlds = started(shapes)
    for world in worlds:
        later(WITHIN_CALL, world.ranks[victim].kill)
    for world, answers in together(worlds, "failures.add_on_and_on"):
        assert answers.pop(victim)["error"] == "Ended"
        assert_told(answers, victim, SOON)
        assert_ends_well(world, others(world, victim))
    assert left_behind() == set()


def test_a_rank_that_does_not_call_is_named_when_the_time_is_up(started: Any) -> None:
    worlds = started([(3, "flat"), (3, "shared")], timeout=SHORT)
    expected = f"all_reduce number 1 (12.0 MiB of Float) did not end within {SHORT * 1e3:.0f} ms: rank 1 ("
    for world, answers in together(worlds, "failures.add", only=[0, 2]):
        assert_told(answers, 1, UP)
        for answer in answers.values():
            assert answer["text"].startswith(expected)
            assert answer["text"].rstrip().endswith("did not call it")
            assert answer["seconds"] >= SHORT - 0.1
        # It hears of it when it comes at last.
        (late,) = world.attempt("failures.add", only=[1]).values()
        assert late["error"] == "DistBackendError"
        assert "rank 1 (" in late["text"]
        assert late["seconds"] < AT_ONCE
        assert_ends_well(world, [0, 1, 2])


def test_a_message_that_is_not_sent_is_missed_when_the_time_is_up(start: Any) -> None:
    world = start(2, "shared").join(timeout=SHORT, gloo=False)
    answers = world.attempt("failures.receive", only=[0], source=1)
    assert_told(answers, 1, UP)
    expected = f"recv from rank 1 (40 bytes of Float) did not end within {SHORT * 1e3:.0f} ms: rank 1 ("
    assert answers[0]["text"].startswith(expected)
    assert_ends_well(world, [0, 1])


def test_a_rank_that_does_not_come_is_named(start: Any, left_behind: Any) -> None:
    world = start(3, "shared")
    world.register()
    (port,) = world.call("context.listen", only=[0])
    answers = world.attempt("context.join", only=[0, 2], port=port, timeout=SHORT)
    for answer in answers.values():
        assert answer["error"] == "DistBackendError"
        assert f"not all ranks came to form the group within {SHORT * 1e3:.0f} ms: rank 1 missing" in answer["text"]
        assert answer["seconds"] < UP
    assert left_behind() == set()
    assert world.end([0, 2]) == [0, 0]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_stopped_is_named(started: Any, victim: int) -> None:
    worlds = started(PAIRS)
    for world in worlds:
        world.ranks[victim].kill(signal.SIGSTOP)
    for world, answers in together(worlds, "failures.add", only=[1 - victim]):
        assert_told(answers, victim, SILENCE if victim == 0 else SOON)
        world.ranks[victim].kill(signal.SIGCONT)
        (late,) = world.attempt("failures.add", only=[victim]).values()
        assert late["error"] == "DistBackendError"
        # The store must be the last to go.
        assert_ends_well(world, [1])
        assert_ends_well(world, [0])


@pytest.mark.parametrize("gone", [0, 1])
def test_a_rank_that_leaves_too_early_is_named(started: Any, gone: int) -> None:
    worlds = started(PAIRS)
    for world in worlds:
        world.ranks[gone].ask("context.leave")
    for world, answers in together(worlds, "failures.add", only=[1 - gone]):
        assert_told(answers, gone, SOON)
        assert "error" not in world.ranks[gone].answer()
        assert_ends_well(world, [1 - gone])
        assert world.end([gone]) == [0]


def test_a_rank_may_leave_when_it_has_done_its_part(started: Any) -> None:
    (world,) = started([(3, "flat")])
    assert world.call("failures.hand_in", late=LATE)[0] == [1.0, 2.0]
    assert_ends_well(world, [0])


def test_wrong_calls_are_refused_and_do_no_harm(world: Any) -> None:
    assert world.call("failures.refused") == [25] * world.size


@pytest.mark.parametrize("topology", ["shared", "nodes"])
def test_without_room_in_shared_memory_all_goes_over_oneccl(start: Any, topology: str) -> None:
    world = start(4, topology)
    try:
        world.call("failures.little_shared_memory", only=[0], size="2m")
        world.call("failures.same_shared_memory", only=[1, 2, 3], pid=world.ranks[0].pid)
    except AssertionError as error:
        if "OSError" in str(error):
            pytest.skip("a mount namespace needs root")
        raise
    world.join(gloo=False)
    assert world.described.startswith("4 ranks over oneCCL; no shared memory: rank 0 (")
    assert "has no room for" in world.described
    assert "spec.node.sharedMemory" in world.described
    assert world.call("failures.add") == [6.0] * 4
    assert_ends_well(world, [0, 1, 2, 3])
