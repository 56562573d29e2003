"""Deadline, time to live, clean-up of pods, and suspension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cpufinetune_operator.model import NotYet, Scale
from cpufinetune_operator.plan import cleanup, completion, deadline, suspend, ttl
from cpufinetune_operator.plan.completion import Ending

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

DEADLINES: dict[str, tuple[list[str], float, float | None]] = {
    "no limit": ([], 100, None),
    "time left": (["runPolicy.activeDeadlineSeconds=150"], 100, 50),
    "none left": (["runPolicy.activeDeadlineSeconds=100"], 100, 0),
    "suspended, when the clock stands still": (
        ["runPolicy={activeDeadlineSeconds: 10, suspend: true}"],
        100,
        None,
    ),
}


@pytest.mark.parametrize(("changes", "ago", "expected"), DEADLINES.values(), ids=DEADLINES)
def test_a_deadline_with(changes: list[str], ago: float, expected: float | None, make: Make) -> None:
    observed = make.active(*changes, status=make.running_status(startTime=make.stamp(-ago)))
    assert deadline.remaining(observed) == expected
    ended = deadline.exceeded(observed)
    assert (ended is not None) is (expected is not None and expected <= 0)
    if ended:
        assert (ended.type, ended.reason) == ("Failed", "DeadlineExceeded")


def test_a_job_that_has_not_started_has_no_deadline(make: Make) -> None:
    assert deadline.remaining(make.observed("runPolicy.activeDeadlineSeconds=1")) is None


LIVES: dict[str, tuple[list[str], float | None]] = {
    "for ever": ([], None),
    "some time": (["runPolicy.ttlSecondsAfterFinished=60"], 50),
    "not at all": (["runPolicy.ttlSecondsAfterFinished=0"], -10),
}


@pytest.mark.parametrize(("changes", "expected"), LIVES.values(), ids=LIVES)
def test_an_ended_job_is_kept(changes: list[str], expected: float | None, make: Make) -> None:
    ended = completion.recorded(make.ended_status(ago=10))
    assert ended is not None
    assert ttl.remaining(make.observed(*changes), ended) == expected


CLEANUPS = {
    "Always goes with success": ("Always", "Complete", True, True),
    "Always goes with failure": ("Always", "Failed", True, True),
    "OnSuccess goes with success": ("OnSuccess", "Complete", True, True),
    "OnSuccess stays with failure": ("OnSuccess", "Failed", True, False),
    "Never stays with success": ("Never", "Complete", True, False),
    "Never stays with failure": ("Never", "Failed", True, False),
    "OnSuccess stops what would go on": ("OnSuccess", "Failed", False, True),
    "Never stops what would go on": ("Never", "Failed", False, True),
}


@pytest.mark.parametrize(("policy", "kind", "spoken", "goes"), CLEANUPS.values(), ids=CLEANUPS)
def test_cleaning_up(policy: str, kind: str, spoken: bool, goes: bool, make: Make) -> None:  # noqa: FBT001
    pod = make.pod(exit=make.exit(1, make.word(1)) if spoken else None)
    observed = make.active(f"runPolicy.cleanPods={policy}", pods=(pod,))
    ending = Ending(type="Complete" if kind == "Complete" else "Failed", reason="R", message="m")
    assert cleanup.scale(observed, ending) == (Scale(uid="set-uid", replicas=0) if goes else None)


@pytest.mark.parametrize("fields", [{"replicas": 0}, {"deleting": True}, {"owner_uid": "somebody"}])
def test_there_is_nothing_to_clean_up_in_a_set_with(fields: dict[str, object], make: Make) -> None:
    observed = make.observed()
    observed = make.observed(job=observed.job, children={"StatefulSet": make.set(observed.job, **fields)})
    assert cleanup.scale(observed, Ending(type="Complete", reason="R", message="m")) is None


def test_suspending_takes_the_pods_away_once(make: Make) -> None:
    observed = make.active("runPolicy.suspend=true")
    assert suspend.wanted(observed)
    assert suspend.scale(observed) == Scale(uid="set-uid", replicas=0)
    children = make.children(observed.job, replicas=0)
    assert suspend.scale(make.active("runPolicy.suspend=true", children=children)) is None


def test_a_resume_waits_for_the_pods_of_before(make: Make) -> None:
    job = make.job()
    children = make.children(job, replicas=0)
    with pytest.raises(NotYet):
        suspend.require_quiet(make.active(job=job, children=children, pods=(make.pod(deleting=True),)))
    suspend.require_quiet(make.active(job=job, children=children, pods=()))
