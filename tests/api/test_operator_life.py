"""An operator from its start to SIGTERM, in the whole cluster and in one namespace: what it does, and may do."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from operators import CHILDREN, RULES, Operator, Place, allowed, audit, rights, rules_everywhere, until, used

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api, Build, Document

ELSEWHERE = "elsewhere"
WORDS = "data/train.csv has no column 'label'"
RESULT = {"path": "model", "steps": 12, "metrics": {"accuracy": 0.9}}
MOST_WRITES = 7
QUIET_SECONDS = 1.0
NOWHERE = ("LabelMissing", "Unschedulable")
SCOPES = {"the whole cluster": "", "one namespace": "life-one"}


@dataclass(slots=True)
class Life:
    """What was seen of an operator's life.

    Attributes:
        namespace: the one that it serves; empty for all.
        writes: of one job from its creation to its end.
        jobs: as they were when it ended, by name.
        objects: what there was of each job then.
        ended: exit code and seconds after SIGTERM.
    """

    user: str
    namespace: str
    audit: Path
    writes: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, Document] = field(default_factory=dict)
    objects: dict[str, list[str]] = field(default_factory=dict)
    replicas: dict[str, int | None] = field(default_factory=dict)
    elsewhere: Document = field(default_factory=dict)
    ended: tuple[int, float] = (-1, 0.0)

    def reason(self, name: str) -> str:
        """Return why a job is as it is."""
        conditions = {one["type"]: one for one in self.jobs[name]["status"]["conditions"]}
        return str(conditions["Ready"]["reason"])


@pytest.fixture(scope="module", params=SCOPES)
def life(request: pytest.FixtureRequest, apiserver: Cluster, api: Api, document: Build) -> Iterator[Life]:
    """Return the life of an operator, now over."""
    scope = SCOPES[request.param]
    place = Place(api, scope or "life-all")
    found = Life(f"operator-of-{place.namespace}", scope, apiserver.plan.logs / "audit.jsonl")
    for namespace in (place.namespace, f"{ELSEWHERE}-{place.namespace}"):
        apiserver.kubectl.create_namespace(namespace)
    apiserver.kubectl.apply(rights(found.user, RULES if scope else rules_everywhere(), scope))
    other = Place(api, f"{ELSEWHERE}-{place.namespace}")
    with Operator(apiserver, found.user, *([f"--namespace={scope}"] if scope else [])) as operator:
        operator.ready()
        before = audit.writes(found.audit, found.user)
        start(place, document("metadata.name=good"))
        place.end("good", result=RESULT)
        place.has_ended("good")
        time.sleep(QUIET_SECONDS)
        found.writes = dict(audit.writes(found.audit, found.user) - before)
        other.create(document("metadata.name=other"))
        for part in (live, live_on):
            part(place, lambda name, *changes: document(f"metadata.name={name}", *changes))
        until("it has nothing to do", lambda: operator.metric("cpufinetune_queue_depth") == 0)
        time.sleep(QUIET_SECONDS)
        found.elsewhere = other.job("other")
        for name in ("good", "bad", "bereft", "paused", "picky"):
            found.jobs[name], found.objects[name] = place.job(name), place.objects(name)
            found.replicas[name] = place.replicas(name)
        found.ended = operator.terminate()
    yield found
    for namespace in (place.namespace, f"{ELSEWHERE}-{place.namespace}"):
        api.request("DELETE", f"/apis/cpufinetune.dev/v1alpha1/namespaces/{namespace}/cpufinetunes")


def live(place: Place, build: Callable[..., Document]) -> None:
    """Let an operator see jobs that fail, lose their children, pause and expire."""
    start(place, build("bad", "spec.nodes=2"))
    place.end("bad", 2, failure={"reason": "NoColumn", "message": WORDS, "fix": "name one that it has"})
    place.has_ended("bad", "Failed")
    start(place, build("bereft"))
    place.end("bereft")
    place.has_ended("bereft")
    place.remove_children("bereft")
    start(place, build("paused", "spec.nodes=2"))
    place.merge("paused", runPolicy={"suspend": True})
    until("paused is so", lambda: place.condition("paused", "Suspended").get("status") == "True")
    place.merge("paused", runPolicy={"suspend": False}, nodes=3)
    place.has_pods("paused")
    start(place, build("short", "spec.runPolicy={ttlSecondsAfterFinished: 1}"))
    place.end("short")
    until("short is deleted", lambda: not place.has("short"))


def live_on(place: Place, build: Callable[..., Document]) -> None:
    """Let it use the rarer of its rights: look up a claim, make a set anew, see whose a taken name is."""
    place.create(build("claimless", "spec.nodes=2", "spec.model={claim: nowhere}"))
    until("claimless is stalled", lambda: place.condition("claimless", "Ready").get("reason") == "ClaimMissing")
    place.create(build("bulky", "spec.runPolicy.suspend=true"))
    place.merge("bulky", runPolicy={"suspend": False})
    place.has_pods("bulky")
    place.merge("bulky", runPolicy={"suspend": True})
    until("bulky is suspended", lambda: place.condition("bulky", "Suspended").get("status") == "True")
    place.merge("bulky", runPolicy={"suspend": False}, output={"ephemeral": None, "volume": {"size": "1Gi"}})
    place.has_pods("bulky")
    place.create(build("picky", "spec.placement.nodeSelector={disk: fast}"))
    place.has_pods("picky")
    place.fits_nowhere("picky")
    until("picky is stalled", lambda: place.condition("picky", "Ready").get("reason") in NOWHERE)
    # It has no field that ours would conflict with.
    spec = {"clusterIP": "None"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": spec}
    services = f"/api/v1/namespaces/{place.namespace}/services"
    assert place.api.request("POST", services, service).object
    place.create(build("taken"))
    until("taken is stalled", lambda: place.condition("taken", "Ready").get("reason") == "NameConflict")
    theirs = place.api.request("GET", f"{services}/taken").object["metadata"]
    assert "ownerReferences" not in theirs, theirs


def start(place: Place, document: Document) -> None:
    """Create a job and let its pods run."""
    name = document["metadata"]["name"]
    place.create(document)
    place.has_pods(name)
    place.run(name)
    place.has_phase(name, "Running")


def test_a_job_is_complete_and_its_result_kept(life: Life) -> None:
    status = life.jobs["good"]["status"]
    assert (status["phase"], life.reason("good"), life.replicas["good"]) == ("Succeeded", "Trained", 0)
    assert status["result"]["path"] == "model"


def test_a_job_takes_few_writes_from_creation_to_its_end(life: Life, record_figure: Callable[[str], None]) -> None:
    total = sum(life.writes.values())
    record_figure(f"operator, one job from creation to Complete: {total} writes: {life.writes}")
    assert 0 < total <= MOST_WRITES, life.writes


def test_a_job_whose_input_is_bad_fails_in_the_trainers_words_and_is_not_tried_again(life: Life) -> None:
    status = life.jobs["bad"]["status"]
    failed = next(one for one in status["conditions"] if one["type"] == "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "NoColumn")
    assert WORDS in failed["message"]
    assert (status["attempt"], status["restarts"], life.replicas["bad"]) == (1, 0, 0)


def test_children_of_a_job_that_has_ended_are_not_made_again(life: Life) -> None:
    assert life.jobs["bereft"]["status"]["phase"] == "Succeeded"
    assert not life.objects["bereft"]


def test_a_job_that_was_paused_goes_on_with_as_many_pods_as_it_asks_for_then(life: Life) -> None:
    kinds = [one.split()[0] for one in life.objects["paused"]]
    assert kinds == [*CHILDREN, "Pod", "Pod", "Pod"]


def test_a_job_elsewhere_is_left_alone_by_an_operator_of_one_namespace(life: Life) -> None:
    assert ("status" in life.elsewhere and "phase" in life.elsewhere["status"]) == (not life.namespace)


def test_nothing_is_asked_for_that_the_role_does_not_allow(life: Life) -> None:
    may = allowed(RULES if life.namespace else rules_everywhere())
    asked = used(audit.entries(life.audit), life.user)
    print("allowed and not used:", sorted(may - asked))
    refused = audit.refused(life.audit, life.user)
    assert asked - may == set()
    assert refused == []


def test_a_job_that_fits_on_no_machine_is_told_which_label_is_missing_where_machines_may_be_listed(life: Life) -> None:
    assert life.reason("picky") == ("Unschedulable" if life.namespace else "LabelMissing")


def test_no_secret_is_ever_touched(life: Life) -> None:
    assert "secrets" not in {resource for _, _, resource in used(audit.entries(life.audit), life.user)}


def test_sigterm_ends_the_operator_in_time_and_well(life: Life) -> None:
    code, seconds = life.ended
    assert code == 0
    assert seconds < 5
