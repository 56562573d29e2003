from __future__ import annotations

import re
from typing import Any

from cpufinetune.report.metrics import METRICS, exposition

SAMPLE = re.compile(r"cpufinetune_\w+ -?\d+(\.\d+)?(e[-+]\d+)?")


def test_what_is_unknown_is_left_out(run: Any) -> None:
    assert exposition({**run.state, "restarts": 0}) == (
        "# HELP cpufinetune_step Optimizer steps taken.\n"
        "# TYPE cpufinetune_step gauge\n"
        "cpufinetune_step 0\n"
        "# HELP cpufinetune_restarts_total Attempts that failed.\n"
        "# TYPE cpufinetune_restarts_total counter\n"
        "cpufinetune_restarts_total 0\n"
        "# HELP cpufinetune_attempt Number of the current life of all ranks.\n"
        "# TYPE cpufinetune_attempt gauge\n"
        "cpufinetune_attempt 1\n"
    )


def test_a_run_on_its_way_has_all_metrics(run: Any) -> None:
    run.begin()
    run.train(1, 20)
    lines = exposition(run.state).splitlines()
    assert len(lines) == 3 * len(METRICS)
    assert all(SAMPLE.fullmatch(line) for line in lines if not line.startswith("#"))
    assert "cpufinetune_communication_ratio 0.25" in lines
