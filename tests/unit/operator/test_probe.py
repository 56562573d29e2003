"""Reading reports over real sockets, from pods that are slow, mistaken or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator import names, probe
from cpufinetune_operator.model import Report, Unreachable
from cpufinetune_operator.probe import Prober, interval, is_news

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.unit.operator.conftest import Make

    from cpufinetune_operator.model import Key

KEY = ("ml", "mrpc")
POLL = 0.05


class Pod:
    """Answers every connection with `answer`, byte for byte; None never answers."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.split(b"\r\n")[0].decode())
        if self.answer is None:
            return
        writer.write(self.answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.close()


def page(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.asynccontextmanager
async def probing(
    pod: Pod, make: Make, monkeypatch: pytest.MonkeyPatch, heard: Callable[[Key], None] = lambda _: None
) -> AsyncIterator[Prober]:
    server = await asyncio.start_server(pod.serve, "127.0.0.1", 0)
    monkeypatch.setattr(names, "PORT_REPORT", server.sockets[0].getsockname()[1])
    monkeypatch.setattr(probe, "TIMEOUT_SECONDS", 0.3 if pod.answer is None else 10)
    prober = Prober(POLL, heard, lambda _: None)
    task = asyncio.create_task(prober.run())
    prober.aim(KEY, make.active(pods=(make.pod(ip="127.0.0.1"),), polling=True))
    try:
        yield prober
    finally:
        task.cancel()
        await asyncio.wait([task])
        server.close()
        for writer in pod.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def until(found: Callable[[], Any]) -> Any:
    async with asyncio.timeout(10):
        while not (value := found()):  # noqa: ASYNC110 - there is nothing to wait for but time
            await asyncio.sleep(0.01)
        return value


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


def test_a_report_is_read_and_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        pod = Pod(page(make.word(state="Training", progress={"step": 4}).encode()))
        heard: list[Key] = []
        async with probing(pod, make, monkeypatch, heard.append) as prober:
            said = await until(lambda: prober.latest(KEY, make.uid))
            assert said == Report(state="Training", progress={"step": 4})
            await until(lambda: len(pod.asked) > 3)
            assert heard == [KEY]
            assert set(pod.asked) == {"GET /report HTTP/1.1"}
            assert prober.latest(KEY, "another job's uid") is None

    play(scene())


HOSTILE = {
    "an error": (page(b"no", "503 Busy"), "answers 503"),
    "a redirect": (page(b"", "302 Found", "Location: http://169.254.169.254/latest"), "answers 302"),
    "something else": (page(b"<html>"), "something else"),
    "another job's report": (page(b'{"schema": 1, "uid": "other"}'), "something else"),
    "a report without end": (page(b"x" * (probe.MOST_BYTES + 1)), "longer than"),
    "a compressed report": (page(gzip.compress(b"{}"), "200 OK", "Content-Encoding: gzip"), "something else"),
    "no HTTP": (b"\x00\x01\x02\r\n\r\n", ""),
    "nothing": (b"", ""),
    "silence": (None, "no answer in time"),
}


@pytest.mark.parametrize(("answer", "why"), HOSTILE.values(), ids=HOSTILE)
def test_unreadable_is(answer: bytes | None, why: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with probing(Pod(answer), make, monkeypatch) as prober:
            said = await until(lambda: prober.latest(KEY, make.uid))
            assert isinstance(said, Unreachable)
            assert why in said.why

    play(scene())


def test_it_recovers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        pod = Pod(page(b"no", "503 Busy"))
        async with probing(pod, make, monkeypatch) as prober:
            await until(lambda: prober.latest(KEY, make.uid))
            pod.answer = page(make.word(state="Preparing").encode())
            await until(lambda: isinstance(prober.latest(KEY, make.uid), Report))

    play(scene())


def test_the_last_report_of_a_job_that_has_finished_is_kept(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        pod = Pod(page(make.word(state="Finished", result={"path": "model"}).encode()))
        async with probing(pod, make, monkeypatch) as prober:
            await until(lambda: prober.latest(KEY, make.uid))
            pod.answer = page(b"", "503 Busy")
            asked = len(pod.asked)
            await until(lambda: len(pod.asked) > asked + probe.FAILURES + 1)
            said = prober.latest(KEY, make.uid)
            assert isinstance(said, Report)
            assert said.state == "Finished"

    play(scene())


STOPS: dict[str, Callable[[Make], Any]] = {
    "the pod does not run": lambda make: make.active(pods=(make.pending(),)),
    "the job has ended": lambda make: make.active(status=make.ended_status()),
    "the job is gone": lambda _: None,
}


@pytest.mark.parametrize("observed", STOPS.values(), ids=STOPS)
def test_nobody_is_asked_any_more_when(
    observed: Callable[[Make], Any], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        pod = Pod(page(make.word(state="Training").encode()))
        async with probing(pod, make, monkeypatch) as prober:
            await until(lambda: pod.asked)
            prober.aim(KEY, observed(make))
            await asyncio.sleep(2 * POLL)
            asked = len(pod.asked)
            await asyncio.sleep(4 * POLL)
            assert len(pod.asked) == asked

    play(scene())


def test_without_polling_nobody_is_asked(make: Make) -> None:
    prober = Prober(None, lambda _: None, lambda _: None)
    prober.aim(KEY, make.active())
    assert prober.latest(KEY, make.uid) is None


STEP = Report(state="Training", progress={"step": 1})
INTERVALS: dict[str, tuple[Report | Unreachable | None, float, float]] = {
    "nothing is known": (None, 9999, 1),
    "it prepares": (Report(state="Preparing"), 9999, 1),
    "it has just begun": (STEP, 10, 5),
    "it takes half an hour": (STEP, 1800, 30),
    "it takes days": (STEP, 86400, 60),
    "it restarts after a long time": (Report(state="Restarting", progress={"step": 1}), 86400, 5),
    "it cannot be read": (Unreachable(why=""), 86400, 5),
}


@pytest.mark.parametrize(("said", "age", "expected"), INTERVALS.values(), ids=INTERVALS)
def test_the_next_look_of_a_job_when(said: Report | Unreachable | None, age: float, expected: float) -> None:
    assert interval(said, age, 5) == expected


NEWS: dict[str, tuple[Report, Report | None, bool]] = {
    "the first report": (STEP, None, True),
    "a new step": (Report(state="Training", progress={"step": 2}), STEP, False),
    "a new attempt": (Report(state="Training", attempt=2), STEP, True),
    "a new state": (Report(state="Finished"), STEP, True),
}


@pytest.mark.parametrize(("new", "old", "expected"), NEWS.values(), ids=NEWS)
def test_what_cannot_wait_is(new: Report, old: Report | None, expected: bool) -> None:  # noqa: FBT001
    assert is_news(new, old) is expected
