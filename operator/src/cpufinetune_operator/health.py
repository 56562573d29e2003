"""`/healthz` (the loop turns), `/readyz` (watches and queue keep up) and `/metrics`."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

# Watches are opened anew every five minutes at least, by their timeout; a minute is for trouble on the way.
WATCH_SECONDS = 400.0
# A look at a job takes milliseconds, and with the API server out of reach as long as its timeouts.
QUEUE_SECONDS = 60.0
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class Pulse:
    """When each watch last showed that it is alive: by an event, or by being answered."""

    expected: tuple[str, ...]
    _beats: dict[str, float] = field(default_factory=dict)

    def beat(self, watch: str, now: float) -> None:
        """Take note of a sign of life."""
        if watch in self.expected:
            self._beats[watch] = now

    def age(self, now: float) -> float:
        """Seconds since the sign of life that is furthest back; infinite if a watch never gave any."""
        return max((now - self._beats.get(watch, float("-inf")) for watch in self.expected), default=0.0)


def problems(watch_age: float, queue_age: float) -> list[str]:
    """Why the operator is not ready; none if it is."""
    found = []
    if watch_age > WATCH_SECONDS:
        found.append(f"a watch gave no sign of life for {watch_age:.0f} s")
    if queue_age > QUEUE_SECONDS:
        found.append(f"a job has waited for {queue_age:.0f} s")
    return found


async def serve(port: int, registry: CollectorRegistry, ages: Callable[[], tuple[float, float]]) -> None:
    """Serve until cancelled. `ages` tells the ages of the oldest watch and of the oldest job in the queue."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        found = problems(*ages())
        return web.Response(text="".join(f"{problem}\n" for problem in found) or "ok\n", status=503 if found else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        # All addresses, of both families: the kubelet and Prometheus ask from elsewhere.
        site = web.TCPSite(runner, None, port)
        await site.start()
        _LOGGER.info("serving /healthz, /readyz and /metrics on %s", ", ".join(str(one) for one in runner.addresses))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
