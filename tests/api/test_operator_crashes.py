"""The operator killed at any moment: the next one finishes what it began, and begins nothing twice."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from operators import RULES, Operator, Place, rights, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api, Build

    Step = Callable[[Place, str], object]

USER = "operator-that-crashes"
NAMESPACE = "crashes"
CRIPPLED = copy.deepcopy(RULES)
for _rule in CRIPPLED:
    if "statefulsets" in _rule["resources"]:
        _rule["verbs"] = ["get", "list", "watch"]
BURST = 12


@dataclass(frozen=True, slots=True)
class Case:
    """What happens to a job.

    Attributes:
        before: with the operator up.
        crippled: the same, but it may not write a StatefulSet any more.
        down: after it was killed.
        after: with the next one.
    """

    before: tuple[Step, ...] = ()
    crippled: tuple[Step, ...] = ()
    down: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()


def runs(place: Place, name: str) -> None:
    place.has_phase(name, "Running")


def remembers(place: Place, name: str) -> None:
    """Note the children, which must be the same at the end."""
    place.uids[name] = place.children(name)


def is_halfway(place: Place, name: str) -> None:
    until(f"{name} has a Service", lambda: place.children(name).get("Service"))
    until(f"{name} lacks its set", lambda: place.condition(name, "Ready").get("status") == "False")
    assert "StatefulSet" not in place.children(name)


def is_complete_with_pods(place: Place, name: str) -> None:
    place.has_phase(name, "Succeeded")
    assert place.replicas(name)


def expires(place: Place, name: str) -> None:
    place.merge(name, runPolicy={"ttlSecondsAfterFinished": 1})


def is_deleted(place: Place, name: str) -> None:
    until(f"{name} is deleted", lambda: not place.has(name))


# Filled by the fixture: what is created depends on the case's number.
def create(place: Place, name: str) -> None:
    place.create(DOCUMENTS[name])


DOCUMENTS: dict[str, dict[str, Any]] = {}
TO_PODS: tuple[Step, ...] = (create, Place.has_pods, remembers)
TO_RUNNING: tuple[Step, ...] = (*TO_PODS, Place.run, runs)
TO_THE_END: tuple[Step, ...] = (*TO_RUNNING, Place.end, Place.has_ended)
CASES: Mapping[str, Case] = {
    "before it saw the job": Case(down=(create,), after=TO_THE_END[1:]),
    "between Service and StatefulSet": Case(crippled=(create, is_halfway, remembers), after=TO_THE_END[1:]),
    "while pods wait": Case(before=TO_PODS, after=TO_THE_END[3:]),
    "before it saw pods run": Case(before=TO_PODS, down=(Place.run,), after=TO_THE_END[4:]),
    "while pods run": Case(before=TO_RUNNING, after=TO_THE_END[5:]),
    "before it saw pods end": Case(before=TO_RUNNING, down=(Place.end,), after=(Place.has_ended,)),
    "between the last status and scaling down": Case(
        before=TO_RUNNING, crippled=(Place.end, is_complete_with_pods), after=(Place.has_ended,)
    ),
    "after the end": Case(before=TO_THE_END, after=(Place.has_ended,)),
    "after the end, with the children deleted by hand": Case(before=TO_THE_END, down=(Place.remove_children,)),
    "during its time to live": Case(before=TO_THE_END, down=(expires,), after=(is_deleted,)),
}
NAMES = {case: f"c{number}" for number, case in enumerate(CASES)}


@pytest.fixture(scope="module")
def place(apiserver: Cluster, api: Api) -> Iterator[Place]:
    """Return a namespace with a job for each case, each of which outlived an operator."""
    apiserver.kubectl.create_namespace(NAMESPACE)
    yield Place(api, NAMESPACE)
    api.request("DELETE", f"/apis/cpufinetune.dev/v1alpha1/namespaces/{NAMESPACE}/cpufinetunes")


@pytest.fixture(scope="module")
def outlived(apiserver: Cluster, place: Place, document: Build) -> Place:
    """Return the namespace after an operator was killed and another one went on."""

    def play(part: str) -> None:
        # One step of each job after the other: most of what is waited for has happened by then.
        steps = itertools.zip_longest(*(getattr(case, part) for case in CASES.values()))
        for at_once in steps:
            for step, name in zip(at_once, NAMES.values(), strict=True):
                if step:
                    step(place, name)

    DOCUMENTS.update({name: document(f"metadata.name={name}", "spec.nodes=2") for name in NAMES.values()})
    apiserver.kubectl.apply(rights(USER, namespace=NAMESPACE))
    with Operator(apiserver, USER, f"--namespace={NAMESPACE}") as first:
        first.ready()
        play("before")
        apiserver.kubectl.apply(rights(USER, CRIPPLED, NAMESPACE))
        question = ("auth", "can-i", "create", "statefulsets.apps", "--as", USER, "--namespace", NAMESPACE)
        # The API server hears of it a little later.
        until("its rights are gone", lambda: apiserver.kubectl.attempt(*question).returncode != 0)
        play("crippled")
        first.kill()
    play("down")
    apiserver.kubectl.apply(rights(USER, namespace=NAMESPACE))
    with Operator(apiserver, USER, f"--namespace={NAMESPACE}") as second:
        second.ready()
        play("after")
        until("it has nothing to do", lambda: second.metric("cpufinetune_queue_depth") == 0)
    return place


@pytest.mark.parametrize("case", [case for case in CASES if "time to live" not in case])
def test_a_job_whose_operator_was_killed_is_complete_as_any_other(case: str, outlived: Place) -> None:
    status = outlived.status(NAMES[case])
    conditions = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert conditions == {
        "Ready": ("True", "Trained"),
        "Suspended": ("False", "NotSuspended"),
        "Complete": ("True", "Trained"),
        "Failed": ("False", "Complete"),
    }
    assert (status["phase"], status["attempt"], status["restarts"]) == ("Succeeded", 1, 0)


@pytest.mark.parametrize("case", [case for case in CASES if "time to live" not in case])
def test_nothing_is_made_twice_and_nothing_anew_after_an_operator_was_killed(case: str, outlived: Place) -> None:
    name = NAMES[case]
    if "by hand" in case:
        assert not outlived.objects(name)
    else:
        assert outlived.uids[name].items() <= outlived.children(name).items()
        assert outlived.objects(name) == [f"{kind} {name}" for kind in ("Service", "NetworkPolicy", "StatefulSet")]


def test_a_job_whose_time_to_live_ends_while_no_operator_runs_is_deleted_by_the_next(outlived: Place) -> None:
    assert not outlived.has(NAMES["during its time to live"])


def test_jobs_of_a_burst_have_one_of_each_child_also_if_the_operator_ended_in_its_midst(
    apiserver: Cluster, outlived: Place, document: Build
) -> None:
    before: dict[str, dict[str, str]] = {}
    for how in ("killed", "asked"):
        jobs = [f"{how}-{number}" for number in range(BURST)]
        with Operator(apiserver, USER, f"--namespace={NAMESPACE}") as operator:
            operator.ready()
            for name in jobs:
                outlived.create(document(f"metadata.name={name}", "spec.nodes=2"))
            until("the middle one has a Service", lambda: outlived.listed("Service", jobs[BURST // 2]))  # noqa: B023
            if how == "asked":
                code, seconds = operator.terminate()
                assert code == 0
                assert seconds < 5
        found = {name: outlived.children(name) for name in jobs}
        print("children when", how, "to end:", sorted(map(len, found.values())))
        before |= found
    with Operator(apiserver, USER, f"--namespace={NAMESPACE}") as last:
        last.ready()
        for name in before:
            outlived.has_pods(name)
    for name, children in before.items():
        assert children.items() <= outlived.children(name).items()
        assert len(outlived.objects(name)) == 5


def test_jobs_are_deleted_and_their_children_collected_while_no_operator_runs(
    apiserver: Cluster, outlived: Place
) -> None:
    name = "killed-0"
    command = ("delete", "cft", name, "--namespace", NAMESPACE)
    assert until("kubectl returns", lambda: apiserver.kubectl.attempt(*command).returncode == 0) < 3
    assert not outlived.has(name)
    until("its children are gone", lambda: not outlived.objects(name), 60)
