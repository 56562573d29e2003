"""What keeps a job from starting shows in its conditions, with what to do, and heals by itself when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from localcluster.plan import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from product import Installed

# The first test builds images and brings the cluster up.
pytestmark = pytest.mark.timeout(1500)

NAME = "job"
SHOWS_SECONDS, HEALS_SECONDS = 60, 90
# A job's pods come one by one, so these are what a healthy start looks like.
HEALTHY = {"PodsPending", "Preparing", "PodsRunning", "Training", "Trained"}

Document = dict[str, Any]


@pytest.fixture
def place(installed: Installed, workspace: str) -> Iterator[Place]:
    """Return a namespace to make jobs in; they are gone before the next test needs the nodes."""
    place = Place(installed, workspace)
    yield place
    place.kubectl("delete", "cft", "--all")
    place.installed.kubectl.wait("no pods are left", lambda: not place.get("pods")["items"], 90)


class Place:
    """A namespace."""

    def __init__(self, installed: Installed, name: str) -> None:
        self.installed, self.name = installed, name

    def kubectl(self, *argv: str) -> str:
        return self.installed.kubectl(*argv, "--namespace", self.name)

    def get(self, *argv: str) -> Document:
        return self.installed.kubectl.get("--namespace", self.name, *argv)

    def apply(self, *objects: Document) -> None:
        self.installed.kubectl.apply(objects, "--namespace", self.name)

    def ready(self) -> Document:
        return self.installed.condition(self.name, NAME, "Ready")

    def shows(self, reason: str, *words: str) -> None:
        """Wait until the job gives a reason in these words; the scheduler may give others first."""

        def shown() -> bool:
            ready = self.ready()
            return ready.get("reason") == reason and all(word in ready["message"] for word in words)

        try:
            self.installed.kubectl.wait(f"{reason} shows", shown, SHOWS_SECONDS)
        except ClusterError:
            pytest.fail(f"{reason} with {words} does not show, but {self.ready()}")

    def heals(self) -> None:
        """Wait until the job is on its way."""
        self.installed.kubectl.wait("it heals", lambda: self.ready().get("reason") in HEALTHY, HEALS_SECONDS)

    def stalled(self) -> bool:
        return self.installed.condition(self.name, NAME, "Stalled").get("status") == "True"


@pytest.fixture
def job(example: Callable[..., Document]) -> Callable[..., Document]:
    """Build the Reuters job under the name `job`."""

    def build(**changes: Any) -> Document:
        document = example("reuters-r8", **changes)
        document["metadata"]["name"] = NAME
        # The cluster's volumes are few, and stay with their claims.
        document["spec"]["output"] = {"ephemeral": True}
        return document

    return build


def test_a_missing_claim_is_named_and_may_come_later(place: Place, job: Callable[..., Document]) -> None:
    place.apply(job(dataset={"claim": "later"}))
    place.shows("ClaimMissing", "later", "create it")
    assert place.stalled()
    claim = place.get("persistentvolumeclaim", "datasets")
    volume = place.installed.kubectl.get("persistentvolume", claim["spec"]["volumeName"])
    later = {"metadata": {"name": "later"}, "spec": {**claim["spec"], "volumeName": f"{place.name}-later"}}
    reference = {"namespace": place.name, "name": "later"}
    spec = {**volume["spec"], "claimRef": reference}
    place.installed.kubectl.apply(
        [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{place.name}-later"}, "spec": spec}]
    )
    place.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", **later})
    place.heals()
    assert not place.stalled()


def test_a_job_that_fits_on_no_machine_says_what_to_lower(place: Place, job: Callable[..., Document]) -> None:
    place.apply(job(node={"cpu": 64}))
    place.shows("Unschedulable", "lower nodes, node.cpu or node.memory")


def test_a_missing_cpu_label_is_named(place: Place, job: Callable[..., Document]) -> None:
    place.apply(job(placement={"cpu": "Xeon"}))
    place.shows("LabelMissing", "node-feature-discovery", "cpu-model.vendor_id=Intel")
    place.installed.kubectl("label", "node", "node-a", "node-b", "feature.node.kubernetes.io/cpu-model.vendor_id=Intel")
    try:
        place.heals()
    finally:
        place.installed.kubectl("label", "node", "node-a", "node-b", "feature.node.kubernetes.io/cpu-model.vendor_id-")


def test_a_quota_that_leaves_no_room_is_shown_until_it_does(place: Place, job: Callable[..., Document]) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    place.apply(quota)
    place.apply(job())
    place.shows("QuotaExceeded", "exceeded quota: small")
    place.kubectl("delete", "resourcequota", "small")
    place.heals()


def test_a_missing_secret_is_named(place: Place, job: Callable[..., Document]) -> None:
    hub = {"name": "example/model", "revision": "0" * 40}
    document = job(hubTokenSecret="mine-hub-token")
    document["spec"]["model"] = hub
    place.apply(document)
    place.shows("SecretMissing", "mine-hub-token", "create it with key token")


def test_an_image_that_is_not_allowed_is_refused_by_name(place: Place, job: Callable[..., Document]) -> None:
    place.apply(job(image="somewhere/else:1"))
    place.shows("ImageNotAllowed", "somewhere/else:1")
    assert place.get("statefulsets")["items"] == []


def test_a_volume_for_one_node_cannot_serve_two(place: Place, job: Callable[..., Document]) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    place.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one"}, "spec": spec})
    document = job()
    document["spec"]["output"] = {"claim": "one"}
    place.apply(document)
    place.shows("ClaimNotShared", "one", "ReadWriteOnce")


def test_a_set_of_somebody_elses_keeps_its_name(place: Place, job: Callable[..., Document]) -> None:
    labels = {"app": "mine"}
    container = {"name": "c", "image": "localhost/cft-probe:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"serviceName": NAME, "replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    place.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME}, "spec": spec})
    place.apply(job())
    place.shows("NameConflict", NAME)
    assert place.get("statefulset", NAME)["spec"]["selector"]["matchLabels"] == labels
    place.kubectl("delete", "statefulset", NAME)
    place.heals()


def test_a_column_that_is_not_there_fails_at_once_in_the_trainers_words(
    place: Place, job: Callable[..., Document]
) -> None:
    place.apply(job(task={"text": ["body"]}))
    ended = place.installed.finish(place.name, NAME, 200)
    failed = place.installed.condition(place.name, NAME, "Failed")
    assert failed["status"] == "True"
    assert "'body'" in failed["message"], failed
    assert "train.csv" in failed["message"], failed
    assert ended["status"]["restarts"] == 0
    place.installed.kubectl.wait("the pods are gone", lambda: not place.get("pods")["items"], 90)
