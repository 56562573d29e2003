"""Jobs deleted in any phase leave nothing behind, and the operator makes nothing anew."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from operators import Operator, Place, rights, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api, Build

    Step = Callable[[Place, str], object]

USER, NAMESPACE = "operator-of-deleted-jobs", "deletions"
# The garbage collector looks for new kinds of owners every 30 seconds.
COLLECTED_SECONDS = 60
QUIET_SECONDS = 1.0


def runs(place: Place, name: str) -> None:
    place.run(name)
    place.has_phase(name, "Running")


def dies(place: Place, name: str) -> None:
    place.end(name, 137)
    place.has_phase(name, "Restarting")


def pauses(place: Place, name: str) -> None:
    place.merge(name, runPolicy={"suspend": True})
    until(f"{name} is suspended", lambda: place.condition(name, "Suspended").get("status") == "True")


def ends(place: Place, name: str) -> None:
    place.end(name)
    place.has_ended(name)


def fails(place: Place, name: str) -> None:
    place.end(name, 2)
    place.has_ended(name, "Failed")


PHASES: Mapping[str, tuple[Step, ...]] = {
    "just created": (),
    "Pending": (Place.has_pods,),
    "Running": (Place.has_pods, runs),
    "Restarting": (Place.has_pods, runs, dies),
    "Suspended": (Place.has_pods, runs, pauses),
    "Complete": (Place.has_pods, runs, ends),
    "Failed": (Place.has_pods, runs, fails),
}
NAMES = {phase: phase.lower().replace(" ", "-") for phase in PHASES}


@pytest.fixture(scope="module")
def left(apiserver: Cluster, api: Api, document: Build) -> Iterator[Place]:
    """Return a namespace in which jobs were deleted in all phases and an operator still runs."""
    apiserver.kubectl.create_namespace(NAMESPACE)
    apiserver.kubectl.apply(rights(USER, namespace=NAMESPACE))
    place = Place(api, NAMESPACE)
    with Operator(apiserver, USER, f"--namespace={NAMESPACE}") as operator:
        operator.ready()
        for phase, steps in reversed(list(PHASES.items())):
            place.create(document(f"metadata.name={NAMES[phase]}", "spec.nodes=2"))
            for step in steps:
                step(place, NAMES[phase])
        for name in NAMES.values():
            place.delete(name)
        until("all is collected", lambda: not any(map(place.objects, NAMES.values())), COLLECTED_SECONDS)
        time.sleep(QUIET_SECONDS)
        until("it has nothing to do", lambda: operator.metric("cpufinetune_queue_depth") == 0)
        yield place


@pytest.mark.parametrize("phase", PHASES)
def test_a_deleted_job_leaves_nothing_behind_when_it_was(phase: str, left: Place) -> None:
    assert not left.has(NAMES[phase])
    assert not left.objects(NAMES[phase])


def test_a_job_of_the_same_name_as_a_deleted_one_begins_anew(left: Place, document: Build) -> None:
    name = NAMES["Complete"]
    left.create(document(f"metadata.name={name}", "spec.nodes=2"))
    left.has_pods(name)
    left.has_phase(name, "Pending")
    uid = left.job(name)["metadata"]["uid"]
    assert {one["metadata"]["labels"]["cpufinetune.dev/job-uid"] for one in left.listed("Pod", name)} == {uid}
    left.delete(name)
