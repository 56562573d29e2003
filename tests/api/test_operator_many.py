"""A thousand jobs that are there when the operator starts."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from operators import Operator, Place, audit, rights, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api, Build, Document

FIRST, SECOND, NAMESPACE = "operator-of-many", "next-operator-of-many", "many"
SUSPENDED, COMPLETE, RUNNING = 990, 5, 5
THREADS = 4
READY_SECONDS = 15
SEEN_SECONDS = 60
JOBS = f"/apis/cpufinetune.dev/v1alpha1/namespaces/{NAMESPACE}/cpufinetunes"


@pytest.fixture(scope="module")
def place(apiserver: Cluster, api: Api, document: Build) -> Iterator[Place]:
    """Return a namespace with a thousand jobs, as an operator that is no more left them."""
    apiserver.kubectl.create_namespace(NAMESPACE)
    place = Place(api, NAMESPACE)
    first = [document(f"metadata.name=job-{number}") for number in range(COMPLETE + RUNNING)]
    idle = document("spec.runPolicy.suspend=true")
    more = [{**idle, "metadata": {"name": f"paused-{number}"}} for number in range(SUSPENDED)]
    for user in (FIRST, SECOND):
        apiserver.kubectl.apply(rights(user))
    with ThreadPoolExecutor(THREADS) as pool:
        parts = [(first + more)[start::THREADS] for start in range(THREADS)]
        list(pool.map(lambda part: make(apiserver, api, part), parts))
    with Operator(apiserver, FIRST) as operator:
        operator.ready()
        started = [one["metadata"]["name"] for one in first]
        for names, step in ((started, Place.has_pods), (started, Place.run), (started, runs)):
            for name in names:
                step(place, name)
        for step in (Place.end, Place.has_ended):
            for name in started[:COMPLETE]:
                step(place, name)
        paused = 'cpufinetune_jobs{phase="Suspended"}'
        until("all were seen", lambda: operator.metric(paused) >= SUSPENDED, SEEN_SECONDS)
        until("it has nothing to do", lambda: operator.metric("cpufinetune_queue_depth") == 0)
    yield place
    # Not waited for: it takes a while.
    apiserver.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def runs(place: Place, name: str) -> None:
    place.has_phase(name, "Running")


def make(apiserver: Cluster, api: Api, documents: list[Document]) -> None:
    """Create jobs through a connection of their own."""
    with contextlib.closing(type(api)(apiserver.kubectl.kubeconfig)) as mine:
        for one in documents:
            assert mine.request("POST", JOBS, one).object


def test_an_operator_that_finds_a_thousand_jobs_is_ready_soon_and_writes_nothing(
    apiserver: Cluster, place: Place, record_figure: Callable[[str], None]
) -> None:

    def versions() -> list[str]:
        names = ("paused-0", "job-0", f"job-{COMPLETE}")
        return [place.job(name)["metadata"]["resourceVersion"] for name in names]

    before = versions()
    with Operator(apiserver, SECOND) as operator:
        seconds, cpu = operator.ready(), operator.cpu_seconds()
        wanted = SUSPENDED + COMPLETE + RUNNING
        seen = seconds + until("all were seen", lambda: operator.metric("cpufinetune_reconciles_total") >= wanted)
        until("it has nothing to do", lambda: operator.metric("cpufinetune_queue_depth") == 0)
        time.sleep(1)
    writes = audit.writes(apiserver.plan.logs / "audit.jsonl", SECOND)
    took = f"ready in {seconds:.1f} s ({cpu:.1f} s of a processor), all seen in {seen:.1f} s"
    record_figure(f"operator, 1,000 jobs at its start: {took}, {sum(writes.values())} writes")
    # Its own time: what else the machine does is not the operator's.
    assert cpu < READY_SECONDS
    assert not writes
    assert versions() == before
