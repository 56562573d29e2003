"""Answers that are asked for once and hold for a while."""

from __future__ import annotations

import asyncio

import pytest

from cpufinetune_operator.recent import Recent


class Oracle:
    """Answers with a number, the first time 0, and fails when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False

    async def ask(self) -> int:
        await asyncio.sleep(0)
        if self.fails:
            raise OSError("away")
        self.asked += 1
        return self.asked - 1


def test_many_who_ask_at_once_are_answered_by_one_question() -> None:
    async def scene() -> None:
        oracle, recent = Oracle(), Recent[int](60)
        assert await asyncio.gather(*(recent.get("a", oracle.ask) for _ in range(9))) == [0] * 9
        assert await recent.get("b", oracle.ask) == 1
        assert await recent.get("a", oracle.ask) == 0

    asyncio.run(scene())


def test_an_answer_gets_old() -> None:
    async def scene() -> None:
        oracle, recent = Oracle(), Recent[int](0)
        assert await recent.get("a", oracle.ask) == 0
        await asyncio.sleep(0.01)
        assert await recent.get("a", oracle.ask) == 1

    asyncio.run(scene())


def test_some_answers_do_not_hold() -> None:
    async def scene() -> None:
        oracle, recent = Oracle(), Recent[int](60, bool)
        assert [await recent.get("a", oracle.ask) for _ in range(3)] == [0, 1, 1]

    asyncio.run(scene())


def test_a_failure_is_nobodys_answer_later_on() -> None:
    async def scene() -> None:
        oracle, recent = Oracle(), Recent[int](60)
        oracle.fails = True
        with pytest.raises(OSError, match="away"):
            await recent.get("a", oracle.ask)
        oracle.fails = False
        assert await recent.get("a", oracle.ask) == 0

    asyncio.run(scene())


def test_one_who_gives_up_leaves_the_answer_to_the_others() -> None:
    async def scene() -> None:
        oracle, recent = Oracle(), Recent[int](60)
        impatient = asyncio.create_task(recent.get("a", oracle.ask))
        await asyncio.sleep(0)
        patient = asyncio.create_task(recent.get("a", oracle.ask))
        impatient.cancel()
        assert await patient == 0
        assert oracle.asked == 1

    asyncio.run(scene())
