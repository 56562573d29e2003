"""Once a job has ended, nothing is ever created again: the worst bug there could be is a training that runs anew."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from cpufinetune_operator.model import Report
from cpufinetune_operator.plan.decide import decide

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

ENDS = ("Complete", "Failed")


@pytest.mark.parametrize("seed", range(200))
def test_once_it_has_ended_nothing_is_ever_created_again(seed: int, make: Make) -> None:
    draw = random.Random(seed)  # noqa: S311 - for a test
    status = make.ended_status(draw.choice(ENDS), ago=draw.choice([0, 10, 1000]))
    changes = draw.sample(
        ["nodes=5", "runPolicy.suspend=true", "runPolicy.cleanPods=Never", "runPolicy.ttlSecondsAfterFinished=60"], 2
    )
    job = make.job(*changes, status=status)
    children = make.children(job, replicas=draw.choice([0, 1, 5]), deleting=draw.random() < 0.2)
    for kind in list(children):
        if draw.random() < 0.5:
            del children[kind]
    pods = tuple(
        make.pod(index, running=draw.random() < 0.5, exit=draw.choice([None, make.exit(0, make.word(0)), make.exit(1)]))
        for index in range(draw.randrange(4))
    )
    report = draw.choice([None, Report(state="Training"), Report(state="Restarting", restarts=99)])
    observed = make.observed(job=job, children=children, pods=pods, report=report)
    plan = decide(observed, make.settings)
    assert plan.apply == ()
    assert plan.delete == ()
    assert plan.scale is None or plan.scale.replicas == 0
    assert plan.events == ()
    written = plan.status or status
    assert {one["type"]: one["status"] for one in written["conditions"]}.items() >= {
        (one["type"], one["status"]) for one in status["conditions"] if one["type"] in ENDS
    }
    assert (written["restarts"], written["completionTime"]) == (status["restarts"], status["completionTime"])
