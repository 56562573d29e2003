"""What the operator counts, for Prometheus. Labels have few values, whatever pods report."""

from __future__ import annotations

import contextlib
import time
from collections import Counter as Tally
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from cpufinetune_operator import names
from cpufinetune_operator.plan import conditions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cpufinetune_operator.model import JobView, Key, Manifest

_RESTART_REASONS = {"Error", "Exited", "Hung", "Killed", "NodeLost", "OOMKilled", "Stalled"}
_SHORT = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15)
_LONG = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)


@dataclass(slots=True)
class _Since:
    uid: str
    phase: str
    time: float


class Metrics:
    """The operator's metrics.

    Args:
        jobs: the jobs there are.
        clock: seconds that only grow.
    """

    def __init__(self, jobs: Callable[[], Iterable[JobView]], clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        self._since: dict[Key, _Since] = {}
        self._looks = self._counter("reconciles", "Looks at jobs")
        self._errors = self._counter("reconcile_errors", "Looks at jobs that failed", "reason")
        self._restarts = self._counter("job_restarts", "Failed attempts of jobs", "reason")
        self._writes = self._counter("api_writes", "Writes to the API server", "kind", "verb")
        self._reports = self._counter("report_reads", "Reads of jobs' reports", "outcome")
        self._seconds = Histogram(
            "cpufinetune_reconcile_seconds", "Time of a look at a job", buckets=_SHORT, registry=self.registry
        )
        self._phases = Histogram(
            "cpufinetune_phase_seconds",
            "Time that jobs spent in a phase",
            ["phase"],
            buckets=_LONG,
            registry=self.registry,
        )
        self.registry.register(_Jobs(jobs))

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Count a look, and the time it takes."""
        self._looks.inc()
        with self._seconds.time():
            yield

    def failed(self, reason: str) -> None:
        """Count a look that failed."""
        self._errors.labels(reason).inc()

    def wrote(self, kind: str, verb: str) -> None:
        """Count a write."""
        self._writes.labels(kind, verb).inc()

    def read(self, outcome: str) -> None:
        """Count a read of a report."""
        self._reports.labels(outcome).inc()

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Show a value as it is when asked."""
        Gauge(f"cpufinetune_{name}", text, registry=self.registry).set_function(value)

    def moved(self, job: JobView, status: Manifest) -> None:
        """Take note of a status that was written."""
        now, phase = self._clock(), status["phase"]
        known = self._since.get(job.key)
        if known and known.uid == job.uid and known.phase != phase:
            self._phases.labels(known.phase).observe(now - known.time)
        if known is None or (known.uid, known.phase) != (job.uid, phase):
            self._since[job.key] = _Since(job.uid, phase, now)
        more = status.get("restarts", 0) - job.status.get("restarts", 0)
        if more > 0:
            self._restarts.labels(_restart_reason(status)).inc(more)

    def forget(self, key: Key) -> None:
        """Forget a job that is gone."""
        self._since.pop(key, None)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"cpufinetune_{name}", text, labels, registry=self.registry)


class _Jobs(Collector):
    """Jobs by phase, counted when asked."""

    def __init__(self, jobs: Callable[[], Iterable[JobView]]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One figure a phase."""
        family = GaugeMetricFamily("cpufinetune_jobs", "Jobs by phase", labels=["phase"])
        counts = Tally(job.status.get("phase", names.PHASE_PENDING) for job in self._jobs())
        for phase in names.PHASES:
            family.add_metric([phase], counts[phase])
        yield family


def _restart_reason(status: Mapping[str, object]) -> str:
    reason = conditions.newest_exit_reason(status)
    return reason if reason in _RESTART_REASONS else "Other"
