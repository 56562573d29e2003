"""The gang as a state machine: which nodes are there, what they shall do next, and when it is over. No I/O.

Gathering ──all ready──▶ Running ──a rank ends──▶ Stopping ──all ended──▶ Gathering | Finished
                            │ all done ─────────────────────────────────────────────▶ Finished
                            │ asked to stop ──▶ Draining ──all ended─────────────────▶ Finished
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from cpufinetune.errors import ExitCode
from cpufinetune.launch.cause import Cause, root


class State(StrEnum):
    """Where the gang stands."""

    GATHERING = "Gathering"
    RUNNING = "Running"
    STOPPING = "Stopping"
    DRAINING = "Draining"
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True)
class Start:
    """Start all ranks of `attempt` after `delay` seconds."""

    attempt: int
    delay: float


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have `node` prepare its data once more."""

    node: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill the ranks that are left."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the ranks to write a checkpoint and end."""


@dataclass(frozen=True, slots=True)
class Finish:
    """It is over: every launcher exits with `code`."""

    code: ExitCode
    cause: Cause | None


Action = Prepare | Start | Stop | Drain | Finish


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """How an attempt ended; `causes` is empty for the one that succeeded."""

    attempt: int
    causes: tuple[Cause, ...]


# Seconds: the first restart is immediate; a job that fails again and again without progress waits longer each time.
LONGEST_DELAY = 60.0


@dataclass(slots=True)
class Gang:
    """All nodes of one job. Feed it what happens; it returns what to do."""

    nodes: int
    backoff_limit: int
    state: State = State.GATHERING
    attempt: int = 0
    failures: int = 0
    records: list[AttemptRecord] = field(default_factory=list)
    _interrupted: bool = False
    _fruitless: int = 0
    _progressed: bool = False
    _ready: set[int] = field(default_factory=set)
    _running: set[int] = field(default_factory=set)
    _causes: list[Cause] = field(default_factory=list)

    def ready(self, node: int) -> list[Action]:
        """Take note of a node that can start ranks."""
        self._ready.add(node)
        return self._gathered()

    def progressed(self) -> None:
        """Take note of a step beyond any earlier one."""
        self._progressed = True

    def done(self, node: int) -> list[Action]:
        """Take note of a node whose ranks all ended well."""
        return self._ended(node, None)

    def ended(self, node: int, cause: Cause) -> list[Action]:
        """Take note of a node whose ranks are all gone, and why."""
        return self._ended(node, cause)

    def lost(self, node: int, cause: Cause) -> list[Action]:
        """Take note of a node that cannot be reached any more; it may come back as a newcomer.

        Lost while it prepares, it may be lost each time: out of memory, say. That counts as a failure, too.
        """
        prepared = node in self._ready
        self._ready.discard(node)
        if node in self._running:
            return self._ended(node, cause)
        return self._failed_early(cause) if self.state == State.GATHERING and not prepared else []

    def unfit(self, cause: Cause) -> list[Action]:
        """Take note of a node that failed to prepare: for bad data only a human can help, else it may try again."""
        if self.state == State.FINISHED:
            return []
        if cause.kind == "Permanent":
            return self._give_up(ExitCode.BAD_INPUT, cause)
        return self._failed_early(cause) or [Prepare(cause.node)]

    def interrupt(self) -> list[Action]:
        """Stop after a checkpoint; asked a second time, stop at once."""
        if self._interrupted and self.state != State.FINISHED:
            return self._finish(ExitCode.INTERRUPTED, None)
        self._interrupted = True
        if self.state == State.RUNNING:
            self.state = State.DRAINING
            return [Drain()]
        if self.state == State.GATHERING:
            return self._finish(ExitCode.INTERRUPTED, None)
        return []

    def deadline(self, cause: Cause) -> list[Action]:
        """Stop because the time is up."""
        return [] if self.state == State.FINISHED else self._give_up(ExitCode.DEADLINE, cause)

    def _failed_early(self, cause: Cause) -> list[Action]:
        self.failures += 1
        if self.failures > self.backoff_limit:
            return self._give_up(ExitCode.GAVE_UP, cause)
        self.records.append(AttemptRecord(self.attempt, (cause,)))
        return []

    def _ended(self, node: int, cause: Cause | None) -> list[Action]:
        self._running.discard(node)
        actions: list[Action] = []
        if cause is not None and self.state in {State.RUNNING, State.STOPPING, State.DRAINING}:
            self._causes.append(cause)
            drained = self.state == State.DRAINING and bool(self._running)
            # While draining, ranks that end as asked are no reason to kill the others; a dead one is.
            if self.state == State.RUNNING or (drained and cause.kind != "Interrupted"):
                self.state = State.STOPPING
                actions.append(Stop())
        if not self._running and self.state in {State.RUNNING, State.STOPPING, State.DRAINING}:
            actions.extend(self._decide())
        return actions

    def _decide(self) -> list[Action]:
        if not self._causes:
            return self._finish(ExitCode.OK, None)
        cause = root(self._causes)
        if cause.kind == "Permanent":
            return self._finish(ExitCode.BAD_INPUT, cause)
        if self._interrupted or cause.kind == "Interrupted":
            return self._finish(ExitCode.INTERRUPTED, cause)
        self.failures += 1
        if self.failures > self.backoff_limit:
            return self._finish(ExitCode.GAVE_UP, cause)
        self._fruitless = 0 if self._progressed else self._fruitless + 1
        self._record()
        self.state = State.GATHERING
        return self._gathered()

    def _gathered(self) -> list[Action]:
        if self.state != State.GATHERING or len(self._ready) < self.nodes:
            return []
        self.state = State.RUNNING
        self.attempt += 1
        self._progressed = False
        self._running = set(range(self.nodes))
        delay = 0.0 if self._fruitless < 2 else min(LONGEST_DELAY, 2.0 ** (self._fruitless - 1))  # noqa: PLR2004
        return [Start(self.attempt, delay)]

    def _record(self) -> None:
        if self.state != State.GATHERING:
            self.records.append(AttemptRecord(self.attempt, tuple(self._causes)))
        self._causes = []

    def _give_up(self, code: ExitCode, cause: Cause) -> list[Action]:
        self.records.append(AttemptRecord(self.attempt, (*self._causes, cause)))
        self._causes = []
        self.state = State.FINISHED
        return [Finish(code, cause)]

    def _finish(self, code: ExitCode, cause: Cause | None) -> list[Action]:
        self._record()
        self.state = State.FINISHED
        return [Finish(code, cause)]
