"""Folds the events of all ranks into what a person, a status or a report wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpufinetune.report.evaluations import Evaluations, primary_metric
from cpufinetune.report.events import (
    Checkpointed,
    Evaluation,
    Event,
    Failure,
    Heartbeat,
    Phase,
    Resources,
    Result,
    Setup,
    Step,
)
from cpufinetune.report.history import History
from cpufinetune.report.plain import plain, timestamp
from cpufinetune.report.ranks import RankState
from cpufinetune.report.speed import Speed

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT_FAILURES = 100


class Progress:
    """A run so far, across its attempts. Events of attempts gone by are ignored, except for failures.

    Args:
        clock: seconds since the epoch.
        first_attempt: the number that a run's attempts start from.
        window_seconds: how much of the latest training time the rates are taken over.
    """

    def __init__(self, *, clock: Callable[[], float], first_attempt: int = 1, window_seconds: float = 30.0) -> None:
        self._clock = clock
        self._first_attempt = self._attempt = first_attempt
        self._ranks: dict[int, RankState] = {}
        self._speed = Speed(window_seconds=window_seconds)
        self._history = History()
        self._evaluations = Evaluations()
        self._setup: Setup | None = None
        self._last: Step | None = None
        self._step = 0
        self._totals = {"samples": 0, "tokens": 0, "paddedTokens": 0}
        self._seconds = {"stepSeconds": 0.0, "communicationSeconds": 0.0, "cpuSeconds": 0.0}
        self._checkpoints: dict[int, Checkpointed] = {}
        self._restarts: list[dict[str, Any]] = []
        self._failures: list[Failure] = []
        self._failure: Failure | None = None
        self._result: Result | None = None
        self._first_time: float | None = None

    def apply(self, event: Event) -> None:
        """Takes one event."""
        if isinstance(event, Failure):
            self._failures = [*self._failures, event][-_KEPT_FAILURES:]
        if isinstance(event, Phase) and event.attempt > self._attempt:
            self._begin(event)
        known = self._ranks.get(event.rank)
        # A rank's word counts for the life that its last phase belongs to.
        attempt = event.attempt if isinstance(event, Phase) else known.attempt if known else self._attempt
        if attempt < self._attempt:
            return
        rank = self._ranks.setdefault(event.rank, RankState(attempt, self._clock(), event.time))
        if isinstance(event, Phase):
            rank.enter(event)
        rank.heard, rank.told = self._clock(), event.time
        self._first_time = event.time if self._first_time is None else self._first_time
        self._take(event, rank)

    @property
    def setup(self) -> Setup | None:
        """What is being trained, once rank 0 has told."""
        return self._setup

    @property
    def result(self) -> Result | None:
        """The finished model, once there is one."""
        return self._result

    def validation_metric(self) -> float | None:
        """The last value of the metric that counts on the validation samples, None before there is a finite one."""
        metrics = self._evaluations.validated()
        name = primary_metric(metrics)
        return None if name is None else plain(metrics[name])

    def snapshot(self) -> dict[str, Any]:
        """The present state as strict JSON: `status.progress` and more, null where nothing is known yet."""
        last, evaluation = self._last, self._evaluations.last
        metrics = plain(evaluation.metrics) if evaluation else {}
        metric = primary_metric(metrics)
        heard = [rank.heard for rank in self._ranks.values()]
        return {
            "attempt": self._attempt,
            "restarts": self._attempt - self._first_attempt,
            "phase": self._ranks[min(self._ranks)].phase if self._ranks else None,
            "step": self._step,
            "totalSteps": self._setup.total_steps if self._setup else None,
            "epoch": plain(last.epoch) if last else None,
            "loss": plain(last.loss) if last and last.rank == 0 else None,
            "smoothedLoss": plain(self._history.smoothed(last.step)) if last else None,
            "learningRate": plain(last.learning_rate) if last else None,
            "gradNorm": plain(last.grad_norm) if last else None,
            "metric": metrics[metric] if metric else None,
            "metricName": metric,
            "metrics": metrics,
            "evaluation": plain(evaluation),
            **plain(self._speed.rates(self._reporting())),
            "paddingShare": self._padding_share(),
            "etaSeconds": self._eta(),
            "lastHeartbeatTime": timestamp(max(heard)) if heard else None,
            "ranks": [self._ranks[rank].summary(rank) for rank in sorted(self._ranks)],
            "failure": plain(self._failure),
            "result": plain(self._result),
        }

    def record(self) -> dict[str, Any]:
        """All that is kept of the run, as strict JSON: the snapshot's values and the histories behind them."""
        leader = self._ranks[min(self._ranks)] if self._ranks else None
        told = [rank.told for rank in self._ranks.values()]
        return {
            "progress": self.snapshot(),
            "setup": plain(self._setup),
            "startTime": timestamp(self._first_time) if self._first_time is not None else None,
            "wallSeconds": max(0.0, max(told) - self._first_time) if self._first_time is not None else None,
            "phaseSeconds": leader.phase_seconds() if leader else {},
            "totals": plain(self._totals | self._seconds),
            "history": self._history.columns(),
            "evaluations": self._evaluations.listed(),
            "checkpoints": [plain(self._checkpoints[step]) for step in sorted(self._checkpoints)],
            "restarts": plain(self._restarts),
            "failures": plain(self._failures),
            "result": plain(self._result),
        }

    def _begin(self, event: Phase) -> None:
        if self._ranks:
            restart = {"attempt": event.attempt, "time": event.time, "reachedStep": self._step, "resumedFromStep": None}
            self._restarts.append(restart)
        self._attempt, self._failure = event.attempt, None
        self._speed.reset()

    def _take(self, event: Event, rank: RankState) -> None:
        match event:
            case Setup():
                self._prepare(event)
            case Step():
                self._advance(event)
            case Evaluation():
                self._evaluations.add(event)
            case Checkpointed():
                self._checkpoints[event.step] = event
            case Result():
                self._result = event
            case Resources():
                rank.remember(rss_bytes=event.rss_bytes, peak_rss_bytes=event.peak_rss_bytes)
            case Failure():
                self._failure = event
            case Phase() | Heartbeat():
                pass

    def _prepare(self, event: Setup) -> None:
        self._setup = event
        self._step = event.resumed_from_step or 0
        if self._restarts:
            self._restarts[-1]["resumedFromStep"] = self._step
        # A world may come back smaller.
        self._ranks = {rank: state for rank, state in self._ranks.items() if rank < event.world_size}

    def _advance(self, event: Step) -> None:
        self._speed.add(event)
        self._history.add(event, attempt=self._attempt)
        self._totals["samples"] += event.samples
        self._totals["tokens"] += event.tokens
        self._totals["paddedTokens"] += event.padded_tokens
        self._seconds["stepSeconds"] += event.seconds
        self._seconds["communicationSeconds"] += event.communication_seconds
        self._seconds["cpuSeconds"] += event.cpu_seconds
        if event.rank == min(self._ranks):
            self._last, self._step = event, event.step

    def _reporting(self) -> int:
        return max(1, sum(rank.attempt == self._attempt for rank in self._ranks.values()))

    def _padding_share(self) -> float | None:
        padded = self._totals["paddedTokens"]
        return 1 - self._totals["tokens"] / padded if padded else None

    def _eta(self) -> int | None:
        if self._result:
            return 0
        seconds = self._speed.step_seconds(self._reporting())
        if seconds is None or self._setup is None:
            return None
        evaluating = self._evaluations.seconds_to_come(
            step=self._step, total_steps=self._setup.total_steps, test_samples=self._setup.test_samples
        )
        return round(seconds * max(0, self._setup.total_steps - self._step) + evaluating)
