"""What node 0 keeps of the run and shows of it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

from cpufinetune.errors import ExitCode
from cpufinetune.launch.cause import PREPARING, root
from cpufinetune.report.console import SilentConsole
from cpufinetune.report.document import build_report, write_report
from cpufinetune.report.events import BadEvent, Setup, Step, decode
from cpufinetune.report.text import intel_line, rank_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cpufinetune.launch.gang import AttemptRecord, Finish
    from cpufinetune.launch.journal import Journal
    from cpufinetune.report.console import Console
    from cpufinetune.report.progress import Progress

SHOW_SECONDS = 0.25
REPORT = "report.json"
OUTCOMES = {ExitCode.OK: "Succeeded", ExitCode.INTERRUPTED: "Interrupted"}


@dataclass(slots=True)
class Recorder:
    """Folds events into the progress model, shows it, and writes report and plots at the end."""

    progress: Progress
    console: Console
    output: Path
    nodes: int
    title: str
    job_document: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    sinks: list[BinaryIO] = field(default_factory=list)
    journal: Journal | None = None
    facts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _layouts: dict[int, list[str]] = field(default_factory=dict)
    _notes: dict[str, None] = field(default_factory=dict)
    _accepted: bool = False
    _shown: bool = False

    def joined(
        self, node: int, layout: Sequence[str], notes: Sequence[str], facts: Mapping[str, Any] | None = None
    ) -> None:
        """Take note of a node; once all are there, show where the ranks run."""
        again = node in self._layouts
        if facts is not None:
            self.facts[node] = facts
        self._layouts[node] = list(layout)
        self._notes.update(dict.fromkeys(notes))
        if again:
            self.note(f"node {node} is back")
        elif len(self._layouts) == self.nodes and not self._shown:
            self._shown = True
            self._show(lambda: self.console.start(self._layout_lines(), self.title))
            self.note("preparing model and data, importing libraries")

    def layouts(self) -> list[dict[str, Any]]:
        """Return the nodes that are known, each with a line a rank."""
        return [{"node": node, "layout": lines} for node, lines in sorted(self._layouts.items())]

    def _layout_lines(self) -> list[str]:
        lines = [f"node {node}: {line}" for node, lines in sorted(self._layouts.items()) for line in lines]
        return [*lines, *(f"note: {note}" for note in self._notes)]

    def heard(self, line: str) -> int | None:
        """Take an event; return the step if it is rank 0's."""
        self._keep(line)
        try:
            event = decode(line)
        except BadEvent:
            return None
        if event.rank == PREPARING:
            return None
        self.progress.apply(event)
        if isinstance(event, Setup):
            self._accepted = True
            self.note(describe_setup(event))
        return event.step if isinstance(event, Step) and event.rank == 0 else None

    def _keep(self, line: str) -> None:
        for sink in list(self.sinks):
            try:
                sink.write(line.encode())
            except OSError as error:
                self.sinks.remove(sink)
                self.note(f"warning: events are no longer written to {sink.name}: {error}")

    def replay(self, path: Path) -> int:
        """Take in the events of earlier runs that this one resumes; return their last attempt, 0 if there was none."""
        for line in path.read_bytes().splitlines():
            try:
                event = decode(line)
            except BadEvent:
                continue
            if event.rank != PREPARING:
                self.progress.apply(event)
        snapshot = self.progress.snapshot()
        return int(snapshot["attempt"]) if snapshot["ranks"] else 0

    def said(self, rank: int, text: str) -> None:
        """Show a line of a rank's own output."""
        self.note(f"[prepare] {text}" if rank == PREPARING else rank_line(rank, text))

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self._show(lambda: self.console.note(text))

    def _show(self, show: Callable[[], None]) -> None:
        try:
            show()
        except OSError:
            # Whoever read it has gone (`| head`); the run goes on.
            self.console = SilentConsole()

    def ended(self, record: AttemptRecord, failures: int) -> None:
        """Take note of how an attempt ended; `failures` is how many of them count."""
        if self.journal is not None:
            self.journal.add(record, failures)

    def restarting(self, attempt: int, last: AttemptRecord) -> None:
        """Say why there is another attempt."""
        self.note(f"attempt {last.attempt} ended: {root(last.causes)}; starting attempt {attempt}")

    async def show(self) -> None:
        """Refresh the console until cancelled."""
        while True:
            await asyncio.sleep(SHOW_SECONDS)
            if self._shown:
                snapshot = self.progress.snapshot()
                self._show(lambda: self.console.update(snapshot))  # noqa: B023 - called at once

    def finish(self, finish: Finish, records: Sequence[AttemptRecord]) -> dict[str, Any]:
        """Write report and plots, show the ending, and return the report.

        The report goes beside the model also when the run failed; a volume that cannot take it does not hide why.
        """
        report = build_report(
            self.progress,
            job_document=self.job_document,
            layout=self._layout_lines(),
            versions=self.versions,
            machine=self.machine,
            plan={},
            attempts=[_document(record) for record in records],
        )
        report["exitCode"] = int(finish.code)
        report["outcome"] = OUTCOMES.get(finish.code, "Failed")
        if not self._accepted and (self.output / REPORT).exists():
            # Nothing was trained: the report that is there says more.
            self._show(lambda: self.console.finish(report))
            return report
        try:
            write_report(self.output / REPORT, report)
            if report["history"]["step"]:
                from cpufinetune.report.plot import plot  # noqa: PLC0415 - matplotlib takes seconds to import

                plot(report, self.output / "loss.png")
                plot(report, self.output / "loss.svg")
        except OSError as error:
            self.note(f"warning: the report could not be written: {error}")
        self._show(lambda: self.console.finish(report))
        return report


def open_events(path: Path) -> BinaryIO:
    """Open a log of events to append to; a line that a crash cut short must not take the next one along.

    Raises:
        OSError: it cannot be written.
    """
    log = path.open("ab", buffering=0)
    if log.seekable() and log.tell():
        with path.open("rb") as written:
            written.seek(-1, os.SEEK_END)
            if written.read() != b"\n":
                log.write(b"\n")
    return log


def _document(record: AttemptRecord) -> dict[str, Any]:
    return {"attempt": record.attempt, "causes": [cause.document() for cause in record.causes]}


def describe_setup(event: Setup) -> str:
    """Return one line on what is trained and how."""
    resumed = "" if event.resumed_from_step is None else f", resumed from step {event.resumed_from_step}"
    extension = f"; {line}" if (line := intel_line({"extra": event.extra})) else ""
    return (
        f"{event.model}: {event.parameters / 1e6:.1f} M parameters ({event.trainable_parameters / 1e6:.2f} M trained), "
        f"{event.train_samples} training samples, {len(event.labels)} classes, {event.total_steps} steps; "
        f"backend {event.backend} ({event.backend_reason}); {event.precision} ({event.precision_reason}){resumed}"
        f"{extension}"
    )
