"""Whole lives of jobs, played against a world of views: what is done, in how many writes, and what never is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator.model import Answers, Claim, Plan, Report

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

RESULT = {"path": "model", "metrics": {}}


def test_a_job_from_creation_to_completion_takes_seven_writes(make: Make) -> None:
    world = make.world("nodes=2")
    world.look()
    world.pods = (make.pending(0), make.pending(1))
    world.look()
    world.pods = (make.pod(0), make.pending(1))
    world.look()
    world.pods = (make.pod(0), make.pod(1))
    world.look()
    world.pods = (make.pod(0, exit=make.exit(0, make.word(0, result=RESULT))), make.pod(1))
    world.look()
    world.pods = ()
    world.look()
    assert world.writes == [
        "Service",
        "NetworkPolicy",
        "StatefulSet",
        "status Pending",
        "status Running",
        "status Succeeded",
        "scale 0",
    ]
    assert world.events == []
    assert world.condition("Complete") == "True"


def test_a_job_that_was_seen_before_is_not_written(make: Make) -> None:
    world = make.running()
    fresh = make.world(children=world.children, pods=world.pods)
    fresh.job = world.job
    fresh.look()
    assert fresh.writes == []


def test_nothing_is_lost_by_an_operator_that_was_away_at_the_end(make: Make) -> None:
    world = make.running("nodes=2")
    word = make.exit(0, make.word(0, result=RESULT))
    world.pods = (make.pod(0, exit=word), make.pod(1, exit=make.exit(0, make.word(0, node=1))))
    world.look()
    assert world.writes == ["status Succeeded", "scale 0"]
    assert world.job.status["result"] == RESULT


def test_the_status_is_written_before_the_pods_that_prove_it_go(make: Make) -> None:
    world = make.running()
    world.pods = (make.pod(exit=make.exit(0, make.word(0, result=RESULT))),)
    plan = world.decide()
    assert plan.status is not None
    assert plan.scale is not None
    assert plan.apply == ()


@pytest.mark.parametrize("lost", ["Service", "NetworkPolicy", "StatefulSet"])
def test_a_child_that_was_deleted_comes_back(lost: Any, make: Make) -> None:
    world = make.running()
    del world.children[lost]
    world.look()
    assert lost in world.writes


def test_a_running_gang_is_never_changed(make: Make) -> None:
    world = make.running()
    world.change("nodes=3", "node.cpu=4", "placement.cpu=Any")
    world.look()
    assert world.taken() == ["status Running"]
    world.look()
    assert world.taken() == []


def test_a_set_that_somebody_else_scaled_is_put_right(make: Make) -> None:
    world = make.running()
    wanted = world.children["StatefulSet"].replicas
    world.children["StatefulSet"] = replace(world.children["StatefulSet"], replicas=wanted + 1)
    world.look()
    assert "StatefulSet" in world.taken()
    assert world.children["StatefulSet"].replicas == wanted


def test_suspend_and_resume_take_the_changes_in(make: Make) -> None:
    world = make.running()
    world.change("runPolicy.suspend=true", "nodes=3")
    world.look()
    assert world.taken() == ["status Suspended", "scale 0"]
    assert world.condition("Suspended") == "False"
    world.pods = ()
    world.look()
    assert world.taken() == ["status Suspended"]
    assert world.condition("Suspended") == "True"
    world.change("nodes=3")
    world.look()
    assert world.taken() == ["StatefulSet", "status Pending"]
    assert world.children["StatefulSet"].replicas == 3
    assert world.events == ["Suspended", "Resumed"]


def test_a_resume_waits_until_the_pods_of_before_are_gone(make: Make) -> None:
    world = make.running("output={volume: {size: 1Gi}}")
    world.change("output={volume: {size: 1Gi}}", "runPolicy.suspend=true")
    world.look()
    world.change("output={volume: {size: 1Gi}}")
    world.taken()
    world.look()
    assert "StatefulSet" not in world.taken()
    world.pods = ()
    world.look()
    assert "StatefulSet" in world.taken()


def test_a_set_whose_fixed_part_has_changed_is_made_anew(make: Make) -> None:
    world = make.running()
    world.change("runPolicy.suspend=true")
    world.look()
    world.pods = ()
    world.change("output={volume: {size: 1Gi}}")
    world.taken()
    world.look()
    assert [write for write in world.taken() if "status" not in write] == ["delete StatefulSet", "StatefulSet"]


def test_a_job_that_is_created_suspended_has_no_children(make: Make) -> None:
    world = make.world("runPolicy.suspend=true")
    world.look()
    assert world.writes == ["status Suspended"]
    world.change()
    world.look()
    assert "StatefulSet" in world.writes


def test_a_refused_job_heals_by_itself(make: Make) -> None:
    world = make.world("nodes=2")
    world.answers = Answers(claims={"models": Claim(name="models", modes=("ReadWriteOnce",))})
    plan = world.look()
    assert world.taken() == ["status Pending"]
    assert (world.condition("Stalled"), plan.requeue_after) == ("True", 30.0)
    assert world.events == ["ClaimNotShared"]
    world.answers = Answers(claims={"models": Claim(name="models", modes=("ReadOnlyMany",))})
    world.look()
    assert "StatefulSet" in world.writes
    assert world.condition("Stalled") == "absent"


def test_a_spec_that_this_version_cannot_read_stalls(make: Make) -> None:
    world = make.world()
    world.job = replace(make.job(), spec=None, invalid="unknown field.")
    world.look()
    assert world.writes == ["status Pending"]
    assert world.condition("Stalled") == "True"


def test_a_deadline_is_kept_and_looked_forward_to(make: Make) -> None:
    world = make.running("runPolicy={activeDeadlineSeconds: 60, cleanPods: Never}")
    world.seconds = 10
    assert world.look().requeue_after == pytest.approx(50)
    world.seconds = 61
    world.look()
    assert world.taken() == ["status Failed", "scale 0"]
    assert world.events == ["DeadlineExceeded"]


def test_a_deadline_does_not_count_while_suspended(make: Make) -> None:
    limit = "runPolicy.activeDeadlineSeconds=60"
    world = make.running(limit)
    world.change(limit, "runPolicy.suspend=true")
    world.look()
    world.pods = ()
    world.seconds = 1000
    world.look()
    world.change(limit)
    world.look()
    assert world.job.status["phase"] == "Pending"
    world.pods = (make.pod(),)
    assert world.decide().requeue_after == pytest.approx(60, abs=60)
    world.seconds = 1061
    world.look()
    assert world.job.status["phase"] == "Failed"


def test_a_job_goes_when_its_time_is_up_and_not_before_its_end_was_written(make: Make) -> None:
    world = make.running("runPolicy.ttlSecondsAfterFinished=30")
    world.pods = (make.pod(exit=make.exit(0, make.word(0, result=RESULT), ago=0)),)
    assert world.look().requeue_after == 30
    world.seconds = 31
    world.pods = ()
    world.look()
    assert world.writes == ["status Succeeded", "scale 0", "delete job"]


def test_a_job_that_is_being_deleted_is_left_alone(make: Make) -> None:
    world = make.running()
    world.job = replace(world.job, deleting=True)
    world.children = {}
    assert world.decide() == Plan()


def test_restarts_are_counted_told_and_limited(make: Make) -> None:
    world = make.running("runPolicy.backoffLimit=1")
    for number, phase in ((1, "Restarting"), (2, "Failed")):
        world.seconds = number * 60
        end = replace(make.exit(137, reason="OOMKilled"), finished_at=make.at(world.seconds))
        world.pods = (make.pending(exit=end, restart_count=number),)
        world.look()
        assert (world.job.status["restarts"], world.job.status["phase"]) == (number, phase)
    assert world.events == ["Restarted", "Restarted", "BackoffLimitExceeded"]
    assert world.job.status["ranks"][0]["lastExit"]["reason"] == "OOMKilled"


def test_each_report_is_written_once(make: Make) -> None:
    world = make.running(polling=True)
    for step in (1, 2):
        world.report = Report(state="Training", progress={"step": step})
        world.look()
        world.look()
    assert world.taken() == ["status Running", "status Running"]


def test_a_quarrel_over_pods_is_told_once(make: Make) -> None:
    world = make.world("nodes=2")
    world.look()
    world.seconds = 10
    world.answers = Answers(warnings={"set-uid": "exceeded quota"})
    world.look()
    world.seconds = 40
    world.look()
    assert world.events == ["QuotaExceeded"]
