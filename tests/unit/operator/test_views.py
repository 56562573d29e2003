"""From the API server's objects to views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator import views
from cpufinetune_operator.plan import objects, pod

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

ENDED = {"exitCode": 137, "reason": "OOMKilled", "message": "m", "finishedAt": "2026-01-02T11:59:00Z"}


def raw_pod(state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    trainer = {"name": "trainer", "restartCount": 2, "state": state or {}, "lastState": last or {}}
    return {
        "metadata": {
            "name": "mrpc-3",
            "namespace": "ml",
            "uid": "u",
            "labels": {"cpufinetune.dev/job-uid": "job"},
            "ownerReferences": [{"uid": "guest"}, {"uid": "set", "controller": True}],
        },
        "spec": {"nodeName": "worker"},
        "status": {"phase": "Running", "podIP": "10.0.0.3", "containerStatuses": [trainer], **status},
    }


def test_a_pod_that_runs() -> None:
    view = views.pod(raw_pod({"running": {"startedAt": "2026-01-02T11:00:00Z"}}, {"terminated": ENDED}))
    assert (view.index, view.job_uid, view.owner_uid, view.node, view.ip) == (3, "job", "set", "worker", "10.0.0.3")
    assert (view.running, view.restart_count) == (True, 2)
    assert view.exit is not None
    assert (view.exit.code, view.exit.reason) == (137, "OOMKilled")


STATES: dict[str, tuple[dict[str, Any], dict[str, Any], int | None]] = {
    "it has just ended": ({"terminated": ENDED}, {"terminated": {"exitCode": 1}}, 137),
    "it waits for its next life": ({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": ENDED}, 137),
    "it never ended": ({"running": {}}, {}, None),
}


@pytest.mark.parametrize(("state", "last", "code"), STATES.values(), ids=STATES)
def test_the_last_end_of_a_container_when(state: dict[str, Any], last: dict[str, Any], code: int | None) -> None:
    end = views.pod(raw_pod(state, last)).exit
    assert (end and end.code) == code


def test_a_pod_that_nothing_is_known_of_yet() -> None:
    view = views.pod({"metadata": {"name": "odd", "namespace": "ml", "uid": "u"}})
    assert (view.index, view.running, view.exit, view.unscheduled, view.waiting) == (-1, False, None, None, ())


CONDITIONS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "unscheduled": (
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"},
        "unscheduled",
        "no room",
    ),
    "scheduled": ({"type": "PodScheduled", "status": "True"}, "unscheduled", None),
    "gated": ({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}, "unscheduled", None),
    "evicted": (
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        "disruption",
        "EvictionByEvictionAPI",
    ),
}


@pytest.mark.parametrize(("condition", "name", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_pod_that_is(condition: dict[str, Any], name: str, expected: object) -> None:
    assert getattr(views.pod(raw_pod(conditions=[condition])), name) == expected


def test_fetch_counts_only_if_it_failed() -> None:
    fetch = {"name": "fetch", "state": {"terminated": {"exitCode": 0}}}
    assert views.pod(raw_pod(initContainerStatuses=[fetch])).fetch_exit is None
    fetch["state"] = {"terminated": {"exitCode": 2, "message": "no"}}
    end = views.pod(raw_pod(initContainerStatuses=[fetch])).fetch_exit
    assert end is not None
    assert end.code == 2


def test_a_child_knows_its_owner_and_its_seals(make: Make) -> None:
    job = make.job("nodes=3")
    assert job.spec is not None
    view = make.set(job)
    assert (view.owner_uid, view.replicas, view.owned_by_namesake) == (make.uid, 3, True)
    assert view.document == objects.digest(pod.document(job))
    stranger = views.child({"kind": "Service", "metadata": {"name": "mrpc", "uid": "x"}})
    assert (stranger.owner_uid, stranger.hash, stranger.owned_by_namesake) == ("", "", False)


def test_a_job_with_fields_of_another_version_says_which(make: Make) -> None:
    raw = make.raw_job()
    raw["spec"]["novelty"] = 1
    view = views.job(raw)
    assert view.spec is None
    assert "spec.novelty" in view.invalid
    assert view.invalid.endswith(".")


def test_nothing_is_kept_of_managed_fields(make: Make) -> None:
    raw = make.raw_job(managedFields=[{"manager": "kubectl"}])
    assert "kubectl" not in repr(views.job(raw))
