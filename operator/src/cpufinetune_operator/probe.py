"""Reads what node 0 of each running job reports. The only module that talks to pods, which are not to be trusted."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from cpufinetune_operator import names
from cpufinetune_operator.model import Report, Unreachable
from cpufinetune_operator.plan import completion, report
from cpufinetune_operator.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune_operator.model import Key, Observed

MOST_BYTES = 512 * 1024
TIMEOUT_SECONDS = 2.0
MOST_AT_ONCE = 32
# A single lost packet is no news.
FAILURES = 3
STARTING_SECONDS = 1.0
# A job of an hour is looked at every minute at most.
SHARE, SLOWEST = 60.0, 12.0
_OK = 200
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class _Target:
    """A job that is asked, and what it said: `latest` is what the operator goes by."""

    uid: str
    ip: str
    since: float
    latest: Report | Unreachable | None = None
    published: float = float("-inf")
    failures: int = 0


def interval(said: Report | Unreachable | None, age: float, poll_seconds: float) -> float:
    """Seconds until the next look: short until training has begun, then longer the longer it takes."""
    if isinstance(said, Report) and said.progress.get("step") and said.state != "Restarting":
        return min(max(age / SHARE, poll_seconds), SLOWEST * poll_seconds)
    if isinstance(said, Unreachable) or (isinstance(said, Report) and said.state == "Restarting"):
        return poll_seconds
    return min(STARTING_SECONDS, poll_seconds)


def is_news(new: Report, old: Report | Unreachable | None) -> bool:
    """Whether a report tells more than how far training is, so that it need not wait for its turn."""
    if not isinstance(old, Report):
        return True
    return (new.state, new.attempt, new.restarts, new.failure) != (old.state, old.attempt, old.restarts, old.failure)


class Prober:
    """Asks the jobs that run, each at its own pace.

    Args:
        poll_seconds: shortest time between two reports that only tell progress; None asks nobody.
        heard: told the key of a job that has something new.
        count: told the outcome of each look.
    """

    def __init__(self, poll_seconds: float | None, heard: Callable[[Key], None], count: Callable[[str], None]) -> None:
        self._poll_seconds = poll_seconds
        self._heard = heard
        self._count = count
        self._targets: dict[Key, _Target] = {}
        self._queue: Queue[Key] = Queue(self._look, MOST_AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    def aim(self, key: Key, observed: Observed | None) -> None:
        """Ask a job from now on, or no more, as its pods are."""
        first = next((pod for pod in observed.pods if pod.index == 0), None) if observed else None
        running = first is not None and first.running and bool(first.ip) and not first.deleting
        if observed is None or observed.job.deleting or completion.recorded(observed.job.status):
            self._targets.pop(key, None)
        elif self._poll_seconds is not None:
            self._aim_at(key, observed.job.uid, first.ip if first and running else "")

    def latest(self, key: Key, uid: str) -> Report | Unreachable | None:
        """What a job said last."""
        target = self._targets.get(key)
        return target.latest if target and target.uid == uid else None

    async def run(self) -> None:
        """Ask until cancelled."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        connector = aiohttp.TCPConnector(limit=MOST_AT_ONCE, force_close=True)
        # Compressed answers are not read: a small one may become any size.
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False) as session:
            self._session = session
            await self._queue.run()

    def _aim_at(self, key: Key, uid: str, ip: str) -> None:
        target = self._targets.get(key)
        if target is None or target.uid != uid:
            target = self._targets[key] = _Target(uid, "", self._now())
        if ip and ip != target.ip:
            # A new pod, or a new container: what the last one said holds no more.
            target.latest, target.failures = None, 0
            self._queue.add(key)
        target.ip = ip

    async def _look(self, key: Key) -> float | None:
        target = self._targets.get(key)
        if target is None or not target.ip or self._poll_seconds is None:
            return None
        try:
            said = await self._ask(target)
        except (OSError, aiohttp.ClientError, TimeoutError, _Unreadable) as error:
            self._count("failed")
            self._missed(key, target, error)
        else:
            self._count("ok")
            target.failures = 0
            if is_news(said, target.latest) or self._now() - target.published >= self._poll_seconds:
                self._publish(key, target, said)
        return interval(target.latest, self._now() - target.since, self._poll_seconds)

    async def _ask(self, target: _Target) -> Report:
        if self._session is None:
            raise _Unreadable("not started")
        url = URL.build(scheme="http", host=target.ip, port=names.PORT_REPORT, path="/report")
        async with self._session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as answer:
            if answer.status != _OK:
                raise _Unreadable(f"it answers {answer.status}")
            said = report.read(await _bounded(answer.content), target.uid)
        if said is None:
            raise _Unreadable("it answers something else than this job's report")
        return said

    def _missed(self, key: Key, target: _Target, error: Exception) -> None:
        target.failures += 1
        done = isinstance(target.latest, Report) and target.latest.state == "Finished"
        if target.failures >= FAILURES and not done and not isinstance(target.latest, Unreachable):
            why = "no answer in time" if isinstance(error, TimeoutError) else report.sentence(str(error))
            self._publish(key, target, Unreachable(why=why or type(error).__name__))

    def _publish(self, key: Key, target: _Target, said: Report | Unreachable) -> None:
        if said != target.latest:
            target.latest, target.published = said, self._now()
            self._heard(key)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class _Unreadable(Exception):  # noqa: N818 - it names the finding
    """There was an answer, and it is none."""


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    data = bytearray()
    async for chunk in content.iter_chunked(64 * 1024):
        data += chunk
        if len(data) > MOST_BYTES:
            raise _Unreadable(f"its report is longer than {MOST_BYTES} bytes")
    return bytes(data)
