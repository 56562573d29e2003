"""A run as a live bar on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cpufinetune.report.text import closing_lines, duration, evaluation_line, measures, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

    from rich.console import RenderableType

_OUTCOME_STYLES = {"Succeeded": "bold green", "Failed": "bold red"}


class RichConsole:
    """A bar with figures below it, notes and evaluations scrolling above.

    Args:
        stream: the terminal.
        clock: seconds, from anywhere.
        color: whether to use colours.
        every_seconds: how often the bar is drawn again.
        width: columns; the terminal's own if not given.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float],
        color: bool = True,
        every_seconds: float = 0.2,
        width: int | None = None,
    ) -> None:
        self._terminal = Terminal(
            file=stream, force_terminal=True, no_color=not color, width=width, highlight=False, soft_wrap=False
        )
        # Drawn from `update` alone: a thread of its own would live in the process that forks the ranks.
        self._live = Live(
            console=self._terminal, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, transient=True
        )
        self._clock = clock
        self._every_seconds = every_seconds
        self._drawn_at: float | None = None
        self._evaluation: Mapping[str, Any] | None = None

    def start(self, layout_lines: Sequence[str], title: str) -> None:
        """Prints the title and the layout, and opens the bar."""
        self._terminal.print(Text(title, style="bold"))
        for line in layout_lines:
            self._terminal.print(Text(f"  {line}", style="dim"))
        self._live.start()

    def update(self, progress: Mapping[str, Any]) -> None:
        """Draws the bar, at most a few times a second; a new evaluation is printed above it."""
        evaluation = progress["evaluation"]
        if evaluation is not None and evaluation != self._evaluation:
            self._evaluation = evaluation
            self._terminal.print(Text(evaluation_line(evaluation), style="cyan"))
        now = self._clock()
        if self._drawn_at is None or now - self._drawn_at >= self._every_seconds:
            self._drawn_at = now
            self._live.update(_bar(progress), refresh=True)

    def note(self, text: str) -> None:
        """Prints a line above the bar; its own colours are kept, cursor movements are not."""
        self._terminal.print(Text.from_ansi(text))

    def finish(self, report: Mapping[str, Any]) -> None:
        """Replaces the bar by how the run ended."""
        self._live.update(Text())
        self._live.stop()
        first, *others = closing_lines(report)
        self._terminal.print(Text(first, style=_OUTCOME_STYLES.get(report["outcome"], "bold yellow")))
        for line in others:
            self._terminal.print(Text(line))


def _bar(progress: Mapping[str, Any]) -> RenderableType:
    total, eta = progress["totalSteps"], progress["etaSeconds"]
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(
        Text(progress["phase"] or "Starting", style="bold"),
        ProgressBar(total=total, completed=progress["step"]) if total else Text(""),
        Text(steps(progress) if total else ""),
        Text(f"eta {duration(eta)}" if eta is not None else "", style="cyan"),
    )
    figures = measures(progress)
    if progress["restarts"]:
        figures.append(f"attempt {progress['attempt']}")
    return Group(grid, Text("  ".join(figures), style="dim"))
