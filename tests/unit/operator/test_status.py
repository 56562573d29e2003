"""Stages, conditions and the whole status: what people and programs get to see."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator.model import Report, Stalled, Unreachable
from cpufinetune_operator.plan import conditions, restart, stage, status
from cpufinetune_operator.plan.completion import Ending
from cpufinetune_operator.plan.conditions import Condition

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

    from cpufinetune_operator.model import Observed
    from cpufinetune_operator.plan.stage import Stage


def active(observed: Observed) -> Stage:
    return stage.active(observed, restart.tally(observed))


TRAINING = Report(state="Training", progress={"step": 3})
PREPARING = Report(state="Preparing", progress={"step": 0})
Fields = dict[str, Any]
NEW: Fields = {"phase": "Pending"}
STAGES: dict[str, tuple[Fields, Fields, tuple[str, str, str, bool]]] = {
    "pods that never ran are pending": (NEW, {"pods": ()}, ("Pending", "False", "PodsPending", True)),
    "pods that ran are restarting": ({}, {"pods": ()}, ("Restarting", "False", "PodRestarting", True)),
    "without polling, pods that run are all one knows": (NEW, {}, ("Running", "True", "PodsRunning", False)),
    "pods that run and said nothing yet are starting": (
        NEW,
        {"polling": True},
        ("Starting", "False", "Preparing", True),
    ),
    "pods that prepare are starting": (
        NEW,
        {"polling": True, "report": PREPARING},
        ("Starting", "False", "Preparing", True),
    ),
    "pods that train are running": ({}, {"polling": True, "report": TRAINING}, ("Running", "True", "Training", False)),
    "an attempt that failed is restarting": (
        {},
        {"polling": True, "report": Report(state="Restarting", progress={"step": 3}, restarts=1)},
        ("Restarting", "False", "Restarting", True),
    ),
    "preparing again is restarting": (
        {},
        {"polling": True, "report": Report(state="Preparing", progress={"step": 3})},
        ("Restarting", "False", "Restarting", True),
    ),
    "a report that nobody can read leaves one guessing": (
        {},
        {"polling": True, "report": Unreachable(why="timeout")},
        ("Running", "Unknown", "ReportUnreachable", False),
    ),
    "after a restart of the operator, what is written stands": (
        {},
        {"polling": True},
        ("Running", "True", "PodsRunning", False),
    ),
}


@pytest.mark.parametrize(("old", "fields", "expected"), STAGES.values(), ids=STAGES)
def test_stage(old: Fields, fields: Fields, expected: tuple[str, str, str, bool], make: Make) -> None:
    found = active(make.active(status=make.running_status(**old), **fields))
    assert (found.phase, found.ready, found.reason, found.moving) == expected


def test_a_launcher_gets_time_to_serve_its_report(make: Make) -> None:
    pod = make.pod(running_since=make.at(-5))
    young = make.active(pods=(pod,), polling=True, report=Unreachable(why="refused"))
    assert active(young).reason == "Preparing"
    again = stage.look_again(young)
    assert again is not None
    assert active(replace(young, now=make.at(again))).reason == "ReportUnreachable"


def test_a_report_that_nobody_can_read_says_what_to_do(make: Make) -> None:
    found = active(make.active(polling=True, report=Unreachable(why="no answer in time")))
    assert "no answer in time" in found.message
    assert "port 8080 of mrpc-0" in found.message


def test_the_message_of_pending_pods_does_not_count_them(make: Make) -> None:
    old = make.running_status(phase="Pending")
    none = active(make.active("nodes=2", status=old, pods=(make.pending(0), make.pending(1))))
    one = active(make.active("nodes=2", status=old, pods=(make.pod(0), make.pending(1))))
    assert none == one


@pytest.mark.parametrize("change", ["nodes=3", "node.cpu=2", "runPolicy.backoffLimit=1"])
def test_a_changed_spec_of_a_running_job_is_said_to_wait(change: str, make: Make) -> None:
    before = make.job()
    observed = make.active(job=make.job(change, status=make.running_status()), children=make.children(before))
    observed = replace(observed, pods=(make.pod(),))
    first = active(observed)
    assert first.phase == "Running"
    assert first.message.endswith("takes effect after the next suspend and resume (runPolicy.suspend).")


@pytest.mark.parametrize("change", ["runPolicy.ttlSecondsAfterFinished=5", "runPolicy.cleanPods=Never"])
def test_what_only_the_operator_minds_takes_effect_at_once(change: str, make: Make) -> None:
    observed = make.active(job=make.job(change, status=make.running_status()), children=make.children(make.job()))
    assert "takes effect" not in active(observed).message


SUSPENDED: dict[str, tuple[list[str], Fields, str, str]] = {
    "pods write their checkpoint": ([], {}, "Suspending", "checkpoint"),
    "nothing is left and nothing was kept": ([], {"replicas": 0}, "Suspended", "begin anew"),
    "a volume keeps the checkpoint": (["output={volume: {size: 1Gi}}"], {"replicas": 0}, "Suspended", "go on"),
}


@pytest.mark.parametrize(("changes", "of_set", "reason", "words"), SUSPENDED.values(), ids=SUSPENDED)
def test_suspended(changes: list[str], of_set: Fields, reason: str, words: str, make: Make) -> None:
    job = make.job("runPolicy.suspend=true", *changes, status=make.running_status())
    pods = () if of_set else (make.pod(),)
    found = stage.suspended(make.active(job=job, children=make.children(job, **of_set), pods=pods))
    assert (found.reason, words in found.message) == (reason, True)
    assert found.moving is (reason == "Suspending")


def test_a_failed_job_is_stalled_and_a_complete_one_is_ready() -> None:
    failed = stage.ended(Ending(type="Failed", reason="R", message="m"))
    complete = stage.ended(Ending(type="Complete", reason="R", message="m"))
    assert (failed.ready, failed.stuck, failed.phase) == ("False", True, "Failed")
    assert (complete.ready, complete.stuck, complete.phase) == ("True", False, "Succeeded")


def build(observed: Observed, at: Stage | None = None, **how: Any) -> dict[str, Any]:
    return status.build(observed, at or active(observed), restart.tally(observed), **how)


def types(built: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in built["conditions"]}


def test_abnormal_conditions_are_there_only_while_true(make: Make) -> None:
    pending = make.active(status=make.running_status(phase="Pending"), pods=())
    always = {"Suspended": "False", "Complete": "False", "Failed": "False"}
    assert types(build(pending)) == {"Ready": "False", "Reconciling": "True", **always}
    assert types(build(make.active())) == {"Ready": "True", **always}
    stalled = stage.hindered(make.observed(), Stalled("NameConflict", "m"))
    assert types(build(make.observed(), stalled)) == {"Ready": "False", "Stalled": "True", **always}


def test_the_time_of_a_condition_changes_only_with_its_status(make: Make) -> None:
    old = [{"type": "Ready", "status": "True", "reason": "A", "message": "a", "lastTransitionTime": make.stamp(-60)}]
    same = Condition(type="Ready", status="True", reason="B", message="b")
    (updated,) = conditions.update(old, [same], 7, make.now)
    assert updated["lastTransitionTime"] == make.stamp(-60)
    assert (updated["reason"], updated["message"], updated["observedGeneration"]) == ("B", "b", 7)
    (turned,) = conditions.update(old, [replace(same, status="False")], 7, make.now)
    assert turned["lastTransitionTime"] == make.stamp()


def test_the_first_status_starts_the_clock_once_pods_are_created(make: Make) -> None:
    observed = make.observed()
    at = stage.active(observed, restart.tally(observed))
    assert "startTime" not in build(observed, at)
    assert build(observed, at, started=True)["startTime"] == make.stamp()


def test_the_clock_stops_while_suspended_and_starts_anew(make: Make) -> None:
    observed = make.active("runPolicy.suspend=true", pods=())
    suspended = build(observed, stage.suspended(observed))
    assert "startTime" not in suspended
    resumed = make.active(job=make.job(status=suspended))
    assert build(resumed, started=True)["startTime"] == make.stamp()


def test_an_ended_job_keeps_its_times_and_its_result(make: Make) -> None:
    last = Report(code=0, progress={"step": 9}, result={"path": "model"})
    ending = Ending(type="Complete", reason="Trained", message="m", at=make.at(-3), report=last)
    observed = make.active()
    built = status.build(observed, stage.ended(ending), restart.tally(observed, ending), ending=ending)
    assert (built["startTime"], built["completionTime"]) == (make.stamp(-100), make.stamp(-3))
    assert (built["result"], built["progress"]) == ({"path": "model"}, {"step": 9})
    assert types(built) == {"Ready": "True", "Suspended": "False", "Complete": "True", "Failed": "False"}


def test_a_report_from_before_the_end_does_not_undo_the_last_word(make: Make) -> None:
    ending = Ending(type="Complete", reason="Trained", message="m", at=make.at(-3), report=None)
    written = make.running_status(progress={"step": 9})
    observed = make.active(status=written, report=Report(progress={"step": 5}))
    built = status.build(observed, stage.ended(ending), restart.tally(observed, ending), ending=ending)
    assert built["progress"] == {"step": 9}


def test_what_is_not_reported_any_more_is_kept(make: Make) -> None:
    old = make.running_status(progress={"step": 3}, layout={"ranks": 2})
    built = build(make.active(status=old))
    assert (built["progress"], built["layout"]) == ({"step": 3}, {"ranks": 2})


def test_numbers_that_the_api_server_writes_otherwise_are_no_difference() -> None:
    assert not status.differs({"progress": {"epoch": 3.0}}, {"progress": {"epoch": 3}})
    assert status.differs({"phase": "Running"}, {"phase": "Running", "progress": {}})


def test_the_resumed_condition_says_so(make: Make) -> None:
    old = make.running_status()
    old["conditions"][1].update(status="True", reason="Suspended")
    (found,) = [one for one in build(make.active(status=old))["conditions"] if one["type"] == "Suspended"]
    assert (found["status"], found["reason"], found["lastTransitionTime"]) == ("False", "Resumed", make.stamp())


def test_reasons_are_words_that_conditions_accept(make: Make) -> None:
    for observed in (make.active(), make.active(pods=()), make.observed()):
        for condition in build(observed)["conditions"]:
            assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", condition["reason"])
            assert condition["message"].endswith(".")
