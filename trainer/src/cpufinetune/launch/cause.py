"""Why the ranks of an attempt ended, and which of several reasons is the root one."""

from __future__ import annotations

import signal
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from cpufinetune.errors import CpuFineTuneError, ExitCode, JobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cpufinetune.report.events import Failure

Kind = Literal["Signal", "Permanent", "Stall", "NodeLost", "Exit", "Interrupted", "Stopped"]

# When one rank dies the others soon fail too, for want of a peer: the strongest cause is taken for the root.
STRENGTH: tuple[Kind, ...] = ("Permanent", "Signal", "Stall", "NodeLost", "Exit", "Interrupted", "Stopped")


# The rank number of the process that prepares a node's data.
PREPARING = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The end of one rank (or node, then `rank` is None); `time` is when it was noticed, seconds since the epoch."""

    kind: Kind
    node: int
    time: float
    reason: str
    message: str
    rank: int | None = None
    code: int | None = None
    fix: str = ""

    def document(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Cause:
        """Read what `document` gave."""
        return cls(**document)

    @property
    def place(self) -> str:
        """Return who ended where."""
        if self.rank is None:
            return f"node {self.node}"
        return f"{'preparation' if self.rank == PREPARING else f'rank {self.rank}'} on node {self.node}"

    def __str__(self) -> str:
        """Return one line for people."""
        advice = f" ({self.fix})" if self.fix else ""
        return f"{self.place}: {self.reason}: {self.message}{advice}"


def of_exit(node: int, rank: int, status: int, failure: Failure | None, *, now: float) -> Cause:
    """Explain a rank's wait status, with its last words if it had any."""
    if status in {ExitCode.INTERRUPTED, -signal.SIGTERM}:
        return Cause(
            kind="Interrupted",
            node=node,
            rank=rank,
            code=status,
            time=now,
            reason="Interrupted",
            message="asked to stop",
        )
    if status < 0:
        names = {number.value: number.name for number in signal.Signals}
        name = names.get(-status, f"signal {-status}")
        hint = "out of memory, or killed by hand" if -status == signal.SIGKILL else "a crash"
        return Cause(
            kind="Signal",
            node=node,
            rank=rank,
            code=128 - status,
            time=now,
            reason="Killed",
            message=f"{name} ({hint})",
        )
    if failure is None:
        return Cause(
            kind="Exit", node=node, rank=rank, code=status, time=now, reason="Exited", message=f"exit code {status}"
        )
    return Cause(
        kind="Permanent" if failure.kind == "Permanent" else "Exit",
        node=node,
        rank=rank,
        code=status,
        time=now,
        reason=failure.reason,
        message=failure.message,
        fix=failure.fix,
    )


def root(causes: Sequence[Cause]) -> Cause:
    """Return the strongest cause, the earliest of equals."""
    return min(causes, key=lambda cause: (STRENGTH.index(cause.kind), cause.time))


def of_error(node: int, error: Exception, *, now: float) -> Cause:
    """Explain what went wrong in a launcher itself."""
    if isinstance(error, CpuFineTuneError):
        kind: Kind = "Permanent" if isinstance(error, JobError) else "Exit"
        return Cause(kind=kind, node=node, time=now, reason=error.reason, message=error.message, fix=error.fix)
    return Cause(kind="Exit", node=node, time=now, reason=type(error).__name__, message=str(error) or "no message")
