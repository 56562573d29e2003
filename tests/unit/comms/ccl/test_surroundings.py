import os
from typing import Any

import pytest

from cpufinetune.comms.ccl import surroundings
from cpufinetune.comms.ccl.locate import CclError


def test_a_variable_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CclError, match="FI_TCP_IFACE is nope0"):
        surroundings.check({"FI_TCP_IFACE": "nope0"})
    surroundings.check({})


def test_the_affinity_stays_as_it_was() -> None:
    before = os.sched_getaffinity(0)
    surroundings.check({"CCL_WORKER_AFFINITY": str(min(before))})
    assert os.sched_getaffinity(0) == before


def test_where_affinity_may_not_be_changed_the_process_own_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("by seccomp")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    surroundings.check({"CCL_WORKER_AFFINITY": str(min(os.sched_getaffinity(0)))})
