"""The work queue: runs a handler for keys, a bounded number at a time and never two for one key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, Generic, TypeVar

from cpufinetune_operator.backlog import Backlog
from cpufinetune_operator.model import NotYet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

K = TypeVar("K", bound="Hashable")
_LOGGER = logging.getLogger(__name__)


class Queue(Generic[K]):
    """Works on keys.

    Args:
        handler: works on a key; returns the seconds after which it wants another turn, or None.
        workers: most keys that are worked on at the same time.
        failed: told each failure's reason.
    """

    def __init__(
        self,
        handler: Callable[[K], Awaitable[float | None]],
        workers: int,
        failed: Callable[[str], None] = lambda _: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._handler = handler
        self._free = asyncio.Semaphore(workers)
        self._failed = failed
        self._backlog: Backlog[K] = Backlog(draw)
        self._wake = asyncio.Event()

    def add(self, key: K) -> None:
        """Ask for work on a key."""
        self._backlog.add(key, self._now())
        self._wake.set()

    def add_later(self, key: K, seconds: float) -> None:
        """Ask for work on a key in a while."""
        self._backlog.add_later(key, self._now() + seconds)
        self._wake.set()

    def add_all(self, keys: Iterable[K]) -> None:
        """Ask for work on all keys."""
        for key in keys:
            self.add(key)

    def __len__(self) -> int:
        return len(self._backlog)

    def oldest(self) -> float:
        """Seconds for which the longest waiting key has waited, or been worked on."""
        return self._backlog.oldest(self._now())

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._free.acquire()
                group.create_task(self._work(await self._next()))

    async def _next(self) -> K:
        while True:
            self._wake.clear()
            key = self._backlog.take(self._now())
            if key is not None:
                return key
            due = self._backlog.next_due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()

    async def _work(self, key: K) -> None:
        try:
            after = await self._handler(key)
        except NotYet as error:
            delay = self._backlog.fail(key, self._now(), error.retry_after)
            self._failed(error.reason)
            _LOGGER.info("%s: %s; again in %.1f s", key, error.message, delay)
        except Exception:
            # A bug of ours in one job must not stop the others.
            delay = self._backlog.fail(key, self._now())
            self._failed("Bug")
            _LOGGER.exception("%s failed; again in %.1f s", key, delay)
        else:
            self._backlog.succeed(key, self._now(), after)
        finally:
            self._free.release()
            self._wake.set()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
