from __future__ import annotations

from typing import Any

import pytest

from cpufinetune.report.text import intel_line


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (None, ""),
        ({"on": False, "reason": "it is not installed"}, ""),
        ({"on": True, "reason": "asked for"}, "intel: on, asked for"),
        (
            {"on": False, "reason": "not 2% faster in a trial", "secondsWith": 0.6512, "secondsWithout": 0.5},
            "intel: off, not 2% faster in a trial: 0.651 s a step with it, 0.5 s without",
        ),
    ],
)
def test_the_extension_is_named_where_it_was_used_or_tried(found: dict[str, Any] | None, line: str) -> None:
    assert intel_line({"extra": {} if found is None else {"intel": found}}) == line


def test_a_run_that_never_got_as_far_has_no_such_line() -> None:
    assert not intel_line(None)
