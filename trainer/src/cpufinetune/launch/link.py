"""How a node finds node 0 and connects to it, again and again if need be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cpufinetune.errors import AttemptError
from cpufinetune.launch import wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# Seconds between tries, at first and at most, and for one try: a pod that is gone does not refuse, it is silent.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
ONE_TRY = 5.0


@dataclass(frozen=True, slots=True)
class Link:
    """The way to the coordinator.

    Attributes:
        locate: Gives node 0's address; asked before each try, since a recreated pod has another one.
        seconds: For how long to try.
        say: Gets a line at each try that fails but the first.
        port: The coordinator's.
    """

    locate: Callable[[], Awaitable[str]]
    seconds: float
    say: Callable[[str], None]
    port: int = wire.COORDINATOR_PORT

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect.

        Raises:
            AttemptError: the time is up, or `locate` gave up.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.seconds
        pause = FIRST_PAUSE
        while True:
            try:
                address = await self.locate()
                opening = asyncio.open_connection(address, self.port, limit=wire.LONGEST_MESSAGE)
                reader, writer = await asyncio.wait_for(opening, ONE_TRY)
                wire.watch(writer)
            except OSError as error:
                # A try that took too long has no text.
                why = str(error) or "no answer"
                if loop.time() >= deadline:
                    raise AttemptError(
                        "CoordinatorMissing",
                        f"node 0 does not answer at port {self.port} after {self.seconds:.0f} s: {why}",
                        "see the log of node 0",
                    ) from error
                if pause > FIRST_PAUSE:
                    self.say(f"waiting for node 0: {why}")
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return reader, writer
