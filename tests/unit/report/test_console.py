from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.report import Console, Failure, PlainConsole, build_report, make_console, rank_line
from cpufinetune.report.rich_console import RichConsole
from cpufinetune.report.text import duration, number, size

if TYPE_CHECKING:
    from tests.unit.report.conftest import Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def report_of(run: Run) -> dict[str, Any]:
    return build_report(
        run.progress,
        job_document={"metadata": {"name": "mrpc"}},
        layout=[],
        versions={},
        machine={},
        plan={},
        attempts=[],
    )


def half_way(run: Run) -> None:
    run.begin()
    run.train(1, 28)


def test_a_line_says_all_about_the_progress(run: Run) -> None:
    half_way(run)
    stream = io.StringIO()
    PlainConsole(stream, clock=lambda: 0.0).update(run.state)
    assert stream.getvalue() == (
        "step 28/100  epoch 0.28  loss 1  32 samples/s  1800 tokens/s  padding 10%  comm 25%  eta 1m12s\n"
    )


def test_a_line_is_printed_every_few_seconds_and_for_each_evaluation(run: Run) -> None:
    stream = io.StringIO()
    console = PlainConsole(stream, clock=lambda: run.now)
    run.begin()
    for done in range(1, 13):
        run.train(done, done)
        console.update(run.state)
        console.update(run.state)
    run.evaluate(12, seconds=1.0)
    console.update(run.state)
    console.update(run.state)
    starts = [line.split("  ")[0] for line in stream.getvalue().splitlines()]
    assert starts == ["step 1/100", "step 6/100", "step 11/100", "step 12/100", "validation at step 12"]


def test_a_long_load_is_one_line(run: Run) -> None:
    stream = io.StringIO()
    console = PlainConsole(stream, clock=lambda: run.now)
    run.phase("Load")
    for _ in range(5):
        run.now += 60
        console.update(run.state)
    assert stream.getvalue() == "load\n"


def test_the_layout_comes_first_and_the_result_last(run: Run) -> None:
    stream = io.StringIO()
    console = PlainConsole(stream, clock=lambda: run.now)
    console.start(["rank 0  cores 0-3", "rank 1  cores 4-7"], "mrpc: 2 ranks")
    run.begin()
    run.train(1, 100)
    run.finish(100)
    console.note(rank_line(1, "a warning\n"))
    console.finish(report_of(run))
    assert stream.getvalue().splitlines() == [
        "mrpc: 2 ranks",
        "  rank 0  cores 0-3",
        "  rank 1  cores 4-7",
        "[rank 1] a warning",
        "Succeeded after 1m40s: step 100/100",
        "loss 0.4  accuracy 0.8125",
        "model: /out/model (256 MiB)",
    ]


def test_a_failure_ends_with_its_fix(run: Run) -> None:
    stream = io.StringIO()
    half_way(run)
    run.apply(
        Failure(rank=1, time=run.now, kind="Permanent", reason="MissingColumn", message="no 'text'", fix="name one")
    )
    PlainConsole(stream, clock=lambda: 0.0).finish(report_of(run))
    assert stream.getvalue().splitlines() == [
        "Failed after 28s: step 28/100",
        "MissingColumn on rank 1: no 'text'",
        "fix: name one",
    ]


@pytest.mark.parametrize(
    ("stream", "environ", "kind"),
    [
        (Terminal(), {"TERM": "xterm"}, RichConsole),
        (Terminal(), {"TERM": "dumb"}, PlainConsole),
        (io.StringIO(), {"TERM": "xterm"}, PlainConsole),
    ],
    ids=["a terminal gets the bar", "a dumb one lines", "a pipe lines"],
)
def test_the_stream_decides_the_console(stream: io.StringIO, environ: dict[str, str], kind: type) -> None:
    assert isinstance(make_console(stream, clock=lambda: 0.0, environ=environ), kind)


def shown(console: Console, stream: io.StringIO, run: Run) -> str:
    console.start(["rank 0  cores 0-3"], "mrpc: 2 ranks")
    half_way(run)
    console.update(run.state)
    run.evaluate(28)
    run.now += 1
    console.update(run.state)
    console.note("[rank 1] text with [bold]brackets[/bold]")
    run.finish(100)
    console.finish(report_of(run))
    return stream.getvalue()


def test_a_terminal_shows_bar_notes_and_outcome(run: Run) -> None:
    stream = Terminal()
    text = shown(RichConsole(stream, clock=lambda: run.now, width=100, color=False), stream, run)
    for expected in (
        "  rank 0  cores 0-3",
        "━━━",
        "28/100",
        "eta 1m12s",
        "loss 1  32 samples/s  1800 tokens/s  padding 10%  comm 25%",
        "validation at step 28",
        "[rank 1] text with [bold]brackets[/bold]",
        "Succeeded after 39s",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("environ", "colored"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)], ids=str
)
def test_no_color_is_honoured(
    run: Run, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], *, colored: bool
) -> None:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    stream = Terminal()
    text = shown(make_console(stream, clock=lambda: run.now, environ=environ), stream, run)
    assert ("\x1b[36m" in text) == colored


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.6, "1m00s"), (72, "1m12s"), (7500, "2h05m"), (97_200, "1d03h"), (-1, "0s")]
)
def test_durations_read_naturally(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.41234, "0.412"), (38.23, "38.2"), (3104.4, "3104"), (0, "0")])
def test_numbers_keep_three_digits(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(12, "12 B"), (2048, "2 KiB"), (3 * 2**40, "3 TiB")])
def test_sizes_are_in_binary_units(value: int, text: str) -> None:
    assert size(value) == text


def test_the_package_loads_neither_matplotlib_nor_rich_nor_torch() -> None:
    check = "import sys, cpufinetune.report; print(sorted({'matplotlib', 'rich', 'torch'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
