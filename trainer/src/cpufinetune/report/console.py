"""What a person sees of a run: a line now and then, or (in `rich_console`) a live bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from cpufinetune.report.text import closing_lines, evaluation_line, progress_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO


class Console(Protocol):
    """Shows one run. `update` takes `Progress.snapshot()` and may be called as often as is handy."""

    def start(self, layout_lines: Sequence[str], title: str) -> None:
        """Shows what is about to run: a title, and a line a rank."""

    def update(self, progress: Mapping[str, Any]) -> None:
        """Shows the present state."""

    def note(self, text: str) -> None:
        """Shows a line that stays."""

    def finish(self, report: Mapping[str, Any]) -> None:
        """Shows how the run ended, from `build_report`; nothing may be shown afterwards but notes."""


class SilentConsole:
    """Shows nothing."""

    def start(self, layout_lines: Sequence[str], title: str) -> None:
        """Nothing."""

    def update(self, progress: Mapping[str, Any]) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def finish(self, report: Mapping[str, Any]) -> None:
        """Nothing."""


class PlainConsole:
    """Lines for logs and pipes: progress every few seconds, each evaluation once.

    Args:
        stream: where to print; flushed after each line, since a pipe would hold lines back.
        clock: seconds, from anywhere.
        every_seconds: how often progress is worth a line.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float], every_seconds: float = 5.0) -> None:
        self._stream = stream
        self._clock = clock
        self._every_seconds = every_seconds
        self._printed_at: float | None = None
        self._printed = ""
        self._evaluation: Mapping[str, Any] | None = None

    def start(self, layout_lines: Sequence[str], title: str) -> None:
        """Prints the title and the layout."""
        for line in (title, *(f"  {line}" for line in layout_lines)):
            self.note(line)

    def update(self, progress: Mapping[str, Any]) -> None:
        """Prints a line if it is time for one or if there is a new evaluation."""
        evaluation = progress["evaluation"]
        evaluated = evaluation is not None and evaluation != self._evaluation
        now = self._clock()
        if evaluated or self._printed_at is None or now - self._printed_at >= self._every_seconds:
            line = progress_line(progress)
            # A state that stands still (a long load) is worth one line, not one every few seconds.
            if line != self._printed:
                self.note(line)
            self._printed_at, self._printed = now, line
        if evaluated:
            self.note(evaluation_line(evaluation))
            self._evaluation = evaluation

    def note(self, text: str) -> None:
        """Prints a line."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def finish(self, report: Mapping[str, Any]) -> None:
        """Prints how it ended."""
        for line in closing_lines(report):
            self.note(line)


def make_console(stream: TextIO, *, clock: Callable[[], float], environ: Mapping[str, str]) -> Console:
    """A live console for a capable terminal, lines for anything else; `NO_COLOR` leaves colours out."""
    if not stream.isatty() or environ.get("TERM") == "dumb":
        return PlainConsole(stream, clock=clock)
    from cpufinetune.report.rich_console import RichConsole  # noqa: PLC0415 - a pod's launcher never needs rich

    return RichConsole(stream, clock=clock, color=not environ.get("NO_COLOR"))
