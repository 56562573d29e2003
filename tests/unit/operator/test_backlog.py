"""Keys that wait for work, by the clock that the test tells."""

from __future__ import annotations

import random

import pytest

from cpufinetune_operator.backlog import FIRST_DELAY, LONGEST_DELAY, Backlog


def backlog(draw: float = 1.0) -> Backlog[str]:
    return Backlog(lambda: draw)


def test_the_key_that_waits_longest_is_first() -> None:
    queue = backlog()
    queue.add("a", 1)
    queue.add("b", 2)
    queue.add("a", 3)
    assert len(queue) == 2
    assert [queue.take(4), queue.take(4), queue.take(4)] == ["a", "b", None]


def test_a_key_that_is_being_worked_on_gets_its_next_turn_afterwards() -> None:
    queue = backlog()
    queue.add("a", 1)
    assert queue.take(1) == "a"
    queue.add("a", 2)
    queue.add("a", 3)
    assert queue.take(3) is None
    queue.succeed("a", 4)
    assert queue.take(4) == "a"
    queue.succeed("a", 5)
    assert queue.take(5) is None


def test_a_busy_key_does_not_stand_in_the_way_of_others() -> None:
    queue = backlog()
    queue.add("a", 1)
    queue.take(1)
    queue.add("a", 2)
    queue.add("b", 3)
    assert queue.take(3) == "b"


def test_later_is_not_before_its_time() -> None:
    queue = backlog()
    queue.add_later("a", 10)
    assert queue.take(9) is None
    assert queue.next_due() == 10
    assert queue.take(10) == "a"
    assert queue.next_due() is None


def test_what_was_asked_for_later_is_replaced() -> None:
    queue = backlog()
    queue.add_later("a", 10)
    queue.add_later("a", 20)
    queue.add_later("b", 30)
    assert queue.next_due() == 20
    queue.add_later("a", 5)
    assert (queue.take(5), queue.take(29), queue.take(30)) == ("a", None, "b")


def test_putting_off_again_and_again_takes_no_memory() -> None:
    queue = backlog()
    for number in range(10_000):
        queue.add_later("a", 1_000_000 + number % 7)
        queue.add_later("b", 2_000_000)
    assert len(queue._heap) < 200
    assert queue.next_due() == 1_000_003
    assert [queue.take(3_000_000), queue.take(3_000_000), queue.take(3_000_000)] == ["a", "b", None]


def test_an_early_turn_stands_for_the_one_that_was_planned() -> None:
    queue = backlog()
    queue.add_later("a", 10)
    queue.add("a", 1)
    assert queue.take(1) == "a"
    queue.succeed("a", 2)
    assert queue.take(11) is None


def test_a_handler_asks_for_its_own_next_turn() -> None:
    queue = backlog()
    queue.add("a", 0)
    queue.take(0)
    queue.succeed("a", 5, after=3)
    assert queue.next_due() == 8


def test_failures_wait_twice_as_long_each_time_and_not_for_ever() -> None:
    queue, delays = backlog(), []
    for _ in range(12):
        queue.add("a", 0)
        queue.take(0)
        delays.append(queue.fail("a", 0))
    assert delays[:4] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY, 8 * FIRST_DELAY]
    assert delays[-1] == LONGEST_DELAY


def test_success_forgets_the_failures() -> None:
    queue = backlog()
    for _ in range(5):
        queue.add("a", 0)
        queue.take(0)
        queue.fail("a", 0)
    queue.add("a", 0)
    queue.take(0)
    queue.succeed("a", 0)
    queue.add("a", 0)
    queue.take(0)
    assert queue.fail("a", 0) == FIRST_DELAY


@pytest.mark.parametrize("draw", [0.0, 0.3, 1.0])
def test_retries_are_spread(draw: float) -> None:
    queue = backlog(draw)
    queue.add("a", 0)
    queue.take(0)
    assert queue.fail("a", 0) == FIRST_DELAY * (0.5 + draw / 2)


def test_a_retry_is_not_before_the_other_side_asked_for_it() -> None:
    queue = backlog()
    queue.add("a", 0)
    queue.take(0)
    assert queue.fail("a", 0, after=30) == 30
    assert queue.take(29) is None


def test_an_event_does_not_wait_for_a_retry() -> None:
    queue = backlog()
    queue.add("a", 0)
    queue.take(0)
    queue.fail("a", 0, after=100)
    queue.add("a", 1)
    assert queue.take(1) == "a"


AGES = {"nothing waits": 0.0, "a key waits": 7.0, "a key is worked on": 7.0, "a key is due for some time": 7.0}


@pytest.mark.parametrize(("state", "age"), AGES.items(), ids=AGES)
def test_the_oldest_is_known_when(state: str, age: float) -> None:
    queue = backlog()
    if state == "a key is due for some time":
        queue.add_later("a", 3)
        queue.add("b", 9)
        queue.take(9)
    elif state != "nothing waits":
        queue.add("a", 3)
        if state == "a key is worked on":
            queue.take(3)
    assert queue.oldest(10) == age


@pytest.mark.parametrize("seed", range(20))
def test_no_key_is_lost_or_worked_on_twice_at_once(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - for a test
    queue: Backlog[int] = Backlog(draw.random)
    asked: dict[int, float] = {}
    busy: set[int] = set()
    for now in range(500):
        key = draw.randrange(6)
        match draw.randrange(4):
            case 0:
                queue.add(key, now)
                asked[key] = now
            case 1:
                queue.add_later(key, now + draw.randrange(20))
            case 2:
                taken = queue.take(now)
                if taken is not None:
                    assert taken not in busy
                    busy.add(taken)
                    asked.pop(taken, None)
            case _:
                if busy:
                    done = busy.pop()
                    draw.choice([queue.succeed, queue.fail])(done, now)
    while (taken := queue.take(10_000)) is not None or busy:
        if taken is not None:
            asked.pop(taken, None)
            busy.add(taken)
        else:
            queue.succeed(busy.pop(), 10_000)
    assert asked == {}
