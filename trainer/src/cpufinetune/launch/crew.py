"""What a member commands: a node with its ranks, or one that has none because it cannot take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cpufinetune.launch.cause import Cause


class Crew(Protocol):
    """The ranks of one node at the orders of its member."""

    @property
    def index(self) -> int:
        """The node's number."""

    def introduce(self) -> dict[str, Any]:
        """Return what the coordinator is told first: `node`, `ranks`, `layout`, `notes` and `facts`."""

    def pids(self) -> list[int]:
        """Return the processes that the node itself waits for."""

    def warm_up(self) -> None:
        """Start what takes time."""

    def begin(self) -> None:
        """Forget the orders of the last attempt."""

    async def prepare(self) -> Cause | None:
        """Get ready; return why it cannot be, if so."""

    async def run(self, attempt: int, master_address: str, master_port: int) -> Cause | None:
        """Run one attempt; return why it failed, if it did."""

    def kill(self) -> None:
        """End all ranks now."""

    def drain(self) -> None:
        """Ask all ranks to write a checkpoint and end."""

    def close(self) -> None:
        """End everything."""


@dataclass(frozen=True, slots=True)
class UnfitCrew:
    """The crew of a node that cannot take part: the gang must hear why, from the coordinator."""

    cause: Cause

    @property
    def index(self) -> int:
        """The node's number."""
        return self.cause.node

    def introduce(self) -> dict[str, Any]:
        """Return that there is nothing to tell of."""
        return {"node": self.index, "ranks": None, "layout": [], "notes": [], "facts": None}

    async def prepare(self) -> Cause | None:
        """Return the reason."""
        return self.cause

    async def run(self, attempt: int, master_address: str, master_port: int) -> Cause | None:
        """Return the reason."""
        del attempt, master_address, master_port
        return self.cause

    def pids(self) -> list[int]:
        """Return none."""
        return []

    def warm_up(self) -> None:
        """Nothing."""

    def begin(self) -> None:
        """Nothing."""

    def kill(self) -> None:
        """Nothing."""

    def drain(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
