"""The queue at work, on a loop whose clock jumps to whatever is due next."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from cpufinetune_operator.model import NotYet
from cpufinetune_operator.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    import pytest


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop that waits for nothing: when nothing is to be done now, it is the time of what is due next."""

    def __init__(self) -> None:
        super().__init__()
        self._jumped = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            if timeout:
                self._jumped += timeout
            return select(0 if timeout else timeout)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._jumped


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(scene())


@contextlib.asynccontextmanager
async def working(handler: Callable[[str], Awaitable[float | None]], workers: int = 2, **how: Any) -> Any:
    queue: Queue[str] = Queue(handler, workers, draw=lambda: 1.0, **how)
    task = asyncio.create_task(queue.run())
    yield queue
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def now() -> float:
    return asyncio.get_running_loop().time()


def test_work_is_bounded_and_never_twice_on_one_key() -> None:
    async def scene() -> None:
        busy: list[str] = []
        most, done = 0, []

        async def handler(key: str) -> None:
            nonlocal most
            assert key not in busy
            busy.append(key)
            most = max(most, len(busy))
            await asyncio.sleep(1)
            busy.remove(key)
            done.append(key)

        async with working(handler, workers=3) as queue:
            for _ in range(2):
                queue.add_all("abcdefg")
                await asyncio.sleep(0.5)
            await asyncio.sleep(20)
        assert most == 3
        assert sorted(done) == sorted("abcabcdefg")

    play(scene)


def test_a_handler_is_called_again_when_it_asked_for_it() -> None:
    async def scene() -> None:
        called: list[float] = []

        async def handler(_: str) -> float | None:
            called.append(now())
            return 10.0 if len(called) < 3 else None

        async with working(handler) as queue:
            queue.add("a")
            await asyncio.sleep(100)
        assert called == [0, 10, 20]

    play(scene)


def test_failures_are_counted_by_reason_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        reasons: list[str] = []
        called: list[float] = []

        async def handler(_: str) -> float | None:
            called.append(now())
            if len(called) == 1:
                raise NotYet("ApiBusy", "too many requests", 7.0)
            if len(called) == 2:
                raise KeyError("bug")
            return None

        async with working(handler, failed=reasons.append) as queue:
            queue.add("a")
            await asyncio.sleep(100)
        assert reasons == ["ApiBusy", "Bug"]
        assert called == [0, 7, 8]

    play(scene)
    assert "KeyError" in caplog.text


def test_a_failing_key_does_not_hold_up_another(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        done: list[str] = []

        async def handler(key: str) -> float | None:
            if key == "bad":
                raise ValueError(key)
            done.append(key)
            return None

        async with working(handler, workers=1) as queue:
            queue.add_all(["bad", "good"])
            await asyncio.sleep(0.1)
        assert done == ["good"]

    play(scene)
    assert "bad failed" in caplog.text


def test_a_key_can_be_put_off() -> None:
    async def scene() -> None:
        called: list[float] = []

        async def handler(_: str) -> None:
            called.append(now())

        async with working(handler) as queue:
            queue.add_later("a", 50)
            await asyncio.sleep(49)
            assert called == []
            assert len(queue) == 0
            await asyncio.sleep(2)
        assert called == [50]

    play(scene)


def test_the_age_of_what_is_stuck_grows() -> None:
    async def scene() -> None:
        async def handler(_: str) -> None:
            await asyncio.sleep(1000)

        async with working(handler, workers=1) as queue:
            queue.add("a")
            await asyncio.sleep(30)
            assert queue.oldest() == 30
            queue.add("b")
            await asyncio.sleep(5)
            assert (queue.oldest(), len(queue)) == (35, 1)

    play(scene)
