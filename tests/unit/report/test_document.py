from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.report import Failure, build_report, write_report

if TYPE_CHECKING:
    from tests.unit.report.conftest import Run


@dataclass(frozen=True, slots=True)
class Pinned:
    rank: int
    main_cores: tuple[int, ...]


def report_of(run: Run) -> dict[str, Any]:
    return build_report(
        run.progress,
        job_document={"metadata": {"name": "mrpc"}},
        layout=[Pinned(0, (0, 1)), Pinned(1, (2, 3))],
        versions={"python": "3.11"},
        machine={"cores": 4},
        plan={"ranks": 2, "folder": Path("out"), "factor": math.inf, "features": {"amx", "avx"}},
        attempts=[{"attempt": 1}],
    )


def finished(run: Run) -> dict[str, Any]:
    run.begin()
    run.train(1, 50, loss=math.nan)
    run.evaluate(50)
    run.train(51, 100, seconds=0.5)
    run.finish(100)
    return report_of(run)


def test_the_file_is_strict_json_and_holds_the_report(run: Run, tmp_path: Path) -> None:
    report = finished(run)
    write_report(tmp_path / "out" / "report.json", report)
    text = (tmp_path / "out" / "report.json").read_text()
    assert json.loads(text) == report
    assert "NaN" not in text
    assert "Infinity" not in text


def test_the_report_says_what_came_out_and_what_it_took(run: Run) -> None:
    report = finished(run)
    assert (report["schemaVersion"], report["outcome"]) == (1, "Succeeded")
    assert report["result"]["metrics"] == {"loss": 0.4, "accuracy": 0.8125}
    assert len(report["history"]["step"]) == len(report["history"]["loss"]) == 100
    assert [each["step"] for each in report["evaluations"]] == [50]
    assert [each["step"] for each in report["checkpoints"]] == [100]
    assert report["peakMemory"] == {"ranks": {"0": 300, "1": 301}, "largestBytes": 301, "totalBytes": 601}
    assert report["speed"]["samplesPerSecond"] == pytest.approx(100 * 32 / 75)
    assert report["wallSeconds"] == pytest.approx(85)


def test_what_others_add_is_kept_as_json_can_hold_it(run: Run) -> None:
    report = finished(run)
    assert report["layout"] == [{"rank": 0, "mainCores": [0, 1]}, {"rank": 1, "mainCores": [2, 3]}]
    assert report["plan"] == {"ranks": 2, "folder": "out", "factor": None, "features": ["amx", "avx"]}


@pytest.mark.parametrize(("fails", "outcome"), [(True, "Failed"), (False, "Interrupted")])
def test_a_run_without_a_result_failed_or_was_interrupted(run: Run, outcome: str, *, fails: bool) -> None:
    run.begin()
    run.train(1, 2)
    if fails:
        run.apply(Failure(rank=0, time=run.now, kind="Permanent", reason="BadData", message="empty", fix="add rows"))
    assert report_of(run)["outcome"] == outcome


def test_a_run_that_never_started_has_a_report(run: Run, tmp_path: Path) -> None:
    write_report(tmp_path / "report.json", report_of(run))
    assert json.loads((tmp_path / "report.json").read_text())["wallSeconds"] is None


def test_the_folder_holds_nothing_but_the_report(run: Run, tmp_path: Path) -> None:
    (tmp_path / ".report.json.tmp").write_text("left by a crash")
    write_report(tmp_path / "report.json", finished(run))
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_write_that_fails_leaves_the_old_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_report(path, finished(run))
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_value_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(tmp_path / "report.json", {"loss": math.nan})
    assert list(tmp_path.iterdir()) == []
