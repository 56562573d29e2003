"""The report as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from cpufinetune.doctor.check import Status, healthy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cpufinetune.doctor.check import Check


def as_json(checks: Sequence[Check]) -> str:
    """Return the report for programs."""
    return json.dumps({"checks": [asdict(check) for check in checks], "healthy": healthy(checks)}, indent=2)


def as_text(checks: Sequence[Check]) -> str:
    """Return the report for people: a line a check, and below it what it costs and how to cure it."""
    name_width = max(len(check.name) for check in checks)
    status_width = max(len(status) for status in Status)
    indent = " " * (status_width + name_width + 4)
    lines = []
    for check in checks:
        lines.append(f"{check.status:<{status_width}}  {check.name:<{name_width}}  {check.value}")
        lines += [f"{indent}costs: {check.cost}"] if check.cost else []
        lines += [f"{indent}cure:  {check.cure}"] if check.cure else []
    return "\n".join([*lines, "", _verdict(checks)])


def _verdict(checks: Sequence[Check]) -> str:
    problems = [check.name for check in checks if check.status is Status.PROBLEM]
    notes = sum(check.status is Status.NOTE for check in checks)
    noted = f"{notes} note{'' if notes == 1 else 's'}"
    if problems:
        return f"not fit for training: {', '.join(problems)}; {noted}"
    return f"fit for training; {noted}"
