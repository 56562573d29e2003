"""Signs of life, figures and logs."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cpufinetune_operator import health
from cpufinetune_operator.health import Pulse, problems
from cpufinetune_operator.logs import JsonFormatter
from cpufinetune_operator.metrics import Metrics
from cpufinetune_operator.model import NotYet
from cpufinetune_operator.transport import Refused, _failure

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

BEATS: dict[str, tuple[dict[str, float], float]] = {
    "no watch was ever answered": ({}, float("inf")),
    "one of two was not": ({"a": 9}, float("inf")),
    "one is silent for longer": ({"a": 9, "b": 4}, 6),
    "a watch that nobody expects": ({"a": 9, "b": 9, "c": 1}, 1),
}


@pytest.mark.parametrize(("beats", "age"), BEATS.values(), ids=BEATS)
def test_the_age_of_the_watches_when(beats: dict[str, float], age: float) -> None:
    pulse = Pulse(("a", "b"))
    for watch, now in beats.items():
        pulse.beat(watch, now)
    assert pulse.age(10) == age


READY = {
    "all is well": (10, 1, 0),
    "a watch is silent": (health.WATCH_SECONDS + 1, 1, 1),
    "a job waits for too long": (10, health.QUEUE_SECONDS + 1, 1),
    "both": (float("inf"), 1e6, 2),
}


@pytest.mark.parametrize(("watch", "queue", "count"), READY.values(), ids=READY)
def test_the_operator_is_ready_if(watch: float, queue: float, count: int) -> None:
    assert len(problems(watch, queue)) == count


def test_the_server_answers(unused_port: int) -> None:
    ages = [(float("inf"), 0.0)]

    async def scene() -> list[tuple[int, str]]:
        registry = CollectorRegistry()
        task = asyncio.create_task(health.serve(unused_port, registry, lambda: ages[0]))
        async with aiohttp.ClientSession() as session, asyncio.timeout(10):
            root = f"http://127.0.0.1:{unused_port}"
            answers = [await get(session, f"{root}/{path}") for path in ("healthz", "readyz", "metrics")]
            ages[0] = (1.0, 1.0)
            answers.append(await get(session, f"{root}/readyz"))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return answers

    (alive, _), (early, why), (metrics, _), (later, _) = asyncio.run(scene())
    assert (alive, early, metrics, later) == (200, 503, 200, 200)
    assert "a watch gave no sign of life" in why


async def get(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    while True:
        try:
            async with session.get(url) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.01)


@pytest.fixture(name="unused_port")
def fixture_unused_port() -> int:
    import socket  # noqa: PLC0415 - for this alone

    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def sample(metrics: Metrics, line: str) -> float:
    found = [one for one in generate_latest(metrics.registry).decode().splitlines() if one.startswith(line + " ")]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def test_jobs_are_counted_by_phase(make: Make) -> None:
    jobs = [make.job(status={"phase": "Running"}), make.job(status={"phase": "Running"}), make.job()]
    metrics = Metrics(lambda: jobs)
    assert sample(metrics, 'cpufinetune_jobs{phase="Running"}') == 2
    assert sample(metrics, 'cpufinetune_jobs{phase="Pending"}') == 1
    assert sample(metrics, 'cpufinetune_jobs{phase="Failed"}') == 0


def test_the_time_in_a_phase_is_taken_when_it_ends(make: Make) -> None:
    time = [0.0]
    metrics = Metrics(list, lambda: time[0])
    job = make.job()
    for seconds, phase in ((0, "Pending"), (5, "Pending"), (30, "Running")):
        time[0] = seconds
        metrics.moved(job, {"phase": phase})
    assert sample(metrics, 'cpufinetune_phase_seconds_sum{phase="Pending"}') == 30
    assert sample(metrics, 'cpufinetune_phase_seconds_count{phase="Pending"}') == 1


RESTARTS = {"a known reason": ("OOMKilled", "OOMKilled"), "any other": ("x" * 60, "Other")}


@pytest.mark.parametrize(("reason", "label"), RESTARTS.values(), ids=RESTARTS)
def test_restarts_are_counted_by(reason: str, label: str, make: Make) -> None:
    metrics = Metrics(list)
    ranks = [{"rank": 0, "lastExit": {"reason": reason, "time": make.stamp()}}]
    metrics.moved(make.job(status={"restarts": 1}), {"phase": "Restarting", "restarts": 3, "ranks": ranks})
    assert sample(metrics, f'cpufinetune_job_restarts_total{{reason="{label}"}}') == 2


def test_a_log_line_is_one_json_object() -> None:
    error = ValueError("two\nlines")
    about = (type(error), error, None)
    record = logging.LogRecord("n", logging.ERROR, __file__, 1, "%s failed\n", ("x",), exc_info=about)
    record.fields = {"job": {"name": "mrpc"}}
    line = JsonFormatter().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["message"], read["severity"], read["job"]) == ("x failed\n", "error", {"name": "mrpc"})
    assert "ValueError: two" in read["exception"]


ANSWERS: dict[str, tuple[int, str | None, str, float | None]] = {
    "too many requests": (429, "7", "ApiBusy", 7),
    "too many requests without a time": (429, None, "ApiBusy", None),
    "a wait without end": (503, "99999", "ApiUnavailable", 300),
    "a wait that is no number": (503, "Wed, 21 Oct 2026", "ApiUnavailable", None),
    "an error of the server": (500, None, "ApiUnavailable", None),
    "a token that has run out": (401, None, "ApiUnavailable", None),
}


@pytest.mark.parametrize(("code", "after", "reason", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_tried_again_is(code: int, after: str | None, reason: str, expected: float | None) -> None:
    found = _failure(code, after, b'{"reason": "R", "message": "m"}')
    assert isinstance(found, NotYet)
    assert (found.reason, found.retry_after) == (reason, expected)


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422])
def test_refused_for_good_is(code: int) -> None:
    found = _failure(code, None, b'{"reason": "Conflict", "message": "m"}')
    assert isinstance(found, Refused)
    assert (found.code, found.reason, found.message) == (code, "Conflict", "m")


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"\xff"])
def test_an_answer_that_is_no_status_still_says_something(data: bytes) -> None:
    found = _failure(403, None, data)
    assert isinstance(found, Refused)
    assert "403" in found.message
