from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from cpufinetune.report import build_report
from cpufinetune.report.plot import plot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.report.conftest import Run

PNG = b"\x89PNG\r\n\x1a\n"


def report_of(run: Run) -> dict[str, Any]:
    return build_report(
        run.progress,
        job_document={"metadata": {"name": "mrpc $5"}},
        layout=[],
        versions={},
        machine={},
        plan={},
        attempts=[],
    )


def ordinary(run: Run) -> None:
    run.begin()
    run.train(1, 50)
    run.evaluate(50)
    run.begin(attempt=2, resumed_from_step=40)
    run.train(41, 100)
    run.evaluate(100)
    run.finish(100)


def nothing(run: Run) -> None:
    assert run.progress.snapshot()["step"] == 0


def one_step(run: Run) -> None:
    run.begin(total_steps=1)
    run.train(1, 1)


def no_evaluation(run: Run) -> None:
    run.begin()
    run.train(1, 30)


def not_a_number(run: Run) -> None:
    run.begin()
    run.train(1, 10, loss=math.nan)
    run.evaluate(10, metrics={"loss": math.nan, "accuracy": math.nan})


def no_time(run: Run) -> None:
    run.begin()
    run.train(1, 10, seconds=0.0)


def only_a_loss(run: Run) -> None:
    run.begin()
    run.train(1, 10)
    run.evaluate(10, metrics={"loss": 0.5})


RUNS = [ordinary, nothing, one_step, no_evaluation, not_a_number, no_time, only_a_loss]


@pytest.mark.parametrize("story", RUNS, ids=lambda story: story.__name__.replace("_", " "))
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_any_run_can_be_drawn(run: Run, tmp_path: Path, story: Callable[[Run], None], suffix: str) -> None:
    story(run)
    path = tmp_path / "plots" / f"run.{suffix}"
    plot(report_of(run), path)
    assert path.stat().st_size > 5000


def test_the_picture_is_of_the_kind_its_suffix_says(run: Run, tmp_path: Path) -> None:
    ordinary(run)
    for name in ("run.png", "run.svg"):
        plot(report_of(run), tmp_path / name)
    assert (tmp_path / "run.png").read_bytes().startswith(PNG)
    assert ET.parse(tmp_path / "run.svg").getroot().tag.endswith("svg")  # noqa: S314 - we have just written it


def test_an_unknown_suffix_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not supported"):
        plot(report_of(run), tmp_path / "run.docx")
