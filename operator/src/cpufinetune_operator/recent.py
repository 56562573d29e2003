"""Answers that hold for a while, so that many who ask the same at once are answered by one question."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

V = TypeVar("V")
MOST = 1000


@dataclass(slots=True)
class Recent(Generic[V]):
    """Answers by what was asked.

    Attributes:
        seconds: how long an answer holds.
        lasting: tells whether it holds at all; all others are forgotten at once.
    """

    seconds: float
    lasting: Callable[[V], bool] = lambda _: True
    _answers: dict[Hashable, tuple[float, asyncio.Task[V]]] = field(default_factory=dict)

    async def get(self, asked: Hashable, ask: Callable[[], Coroutine[object, object, V]]) -> V:
        """The answer, which `ask` gets if there is none that holds."""
        now = asyncio.get_running_loop().time()
        since, task = self._answers.get(asked, (0.0, None))
        if task is None or (task.done() and now - since > self.seconds):
            if len(self._answers) >= MOST:
                self._answers.clear()
            task = asyncio.create_task(ask())
            self._answers[asked] = now, task
        try:
            # One who gives up must not take the answer away from the others.
            answer = await asyncio.shield(task)
        except Exception:
            self._forget(asked, task)
            raise
        if not self.lasting(answer):
            self._forget(asked, task)
        return answer

    def _forget(self, asked: Hashable, task: asyncio.Task[V]) -> None:
        if self._answers.get(asked, (0.0, None))[1] is task:
            del self._answers[asked]
