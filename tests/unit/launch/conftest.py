from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.launch.cause import Cause

if TYPE_CHECKING:
    from collections.abc import Callable

REASONS = {"Permanent": "MissingColumn", "Signal": "Killed", "Stall": "Stalled", "Exit": "Exited"}


def _cause(kind: str = "Exit", node: int = 0, **changes: Any) -> Cause:
    values: dict[str, Any] = {
        "kind": kind,
        "node": node,
        "time": 100.0,
        "reason": REASONS.get(kind, kind),
        "message": f"{kind} of node {node}",
    }
    return Cause(**values | changes)


@pytest.fixture(scope="session")
def cause() -> Callable[..., Cause]:
    return _cause
