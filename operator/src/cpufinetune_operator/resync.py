"""A look at everything now and then, and at what a watch may have missed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cpufinetune_operator import kinds
from cpufinetune_operator.model import NotYet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cpufinetune_operator.kinds import Kind
    from cpufinetune_operator.kube import Kube
    from cpufinetune_operator.mirror import Mirror
    from cpufinetune_operator.model import Key
    from cpufinetune_operator.queue import Queue

# Objects of a new list come in one by one.
_SETTLE_SECONDS = 1.0
_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class Resync:
    """Compares the mirror with what there is, and has every job looked at."""

    mirror: Mirror
    kube: Kube
    queue: Queue[Key]
    namespaces: tuple[str, ...]
    seconds: float
    _suspects: set[str] = field(default_factory=set)
    _asked: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self, kind: Kind) -> None:
        """Compare a kind soon: its watch began anew."""
        self._suspects.add(kind.name)
        self._asked.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self.seconds
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._asked.wait()
            if loop.time() >= due:
                due = loop.time() + self.seconds
                await self._sweep(kinds.WATCHED)
                self.queue.add_all(self.mirror.keys())
            else:
                await asyncio.sleep(_SETTLE_SECONDS)
                suspects, self._suspects = self._suspects, set()
                self._asked.clear()
                await self._sweep(kinds.BY_NAME[name] for name in suspects)

    async def _sweep(self, suspects: Iterable[Kind]) -> None:
        for kind in suspects:
            for namespace in self.namespaces or (None,):
                try:
                    listed, version = await self.kube.uids(kind, namespace)
                except NotYet as error:
                    _LOGGER.warning("cannot list %s: %s", kind.plural, error)
                    continue
                missed = self.mirror.sweep(kind, namespace, listed, version)
                if missed:
                    _LOGGER.warning("missed the deletion of %d %s", len(missed), kind.plural)
                self.queue.add_all(missed)
