"""What keeps pods from running, and whether the words help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator.model import Answers, Exit, Waiting
from cpufinetune_operator.plan import stall

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

    from cpufinetune_operator.model import Observed

AFFINITY = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: none"
INTEL = "feature.node.kubernetes.io/cpu-model.vendor_id=Intel"


def waits(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": (Waiting(container="trainer", reason=reason, message=message),)}


def unscheduled(message: str) -> dict[str, Any]:
    return {"unscheduled": message}


Pods = tuple[dict[str, Any], Answers, str, bool, list[str]]
PODS: dict[str, Pods] = {
    "no room": (
        unscheduled("0/2 nodes are available: 2 Insufficient cpu."),
        Answers(),
        "Unschedulable",
        False,
        ["node.cpu"],
    ),
    "taints": (
        unscheduled("0/2 nodes are available: 2 node(s) had untolerated taint {a: b}."),
        Answers(),
        "Unschedulable",
        False,
        ["spec.placement.tolerations"],
    ),
    "taints of other machines, and no room": (
        unscheduled("0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient cpu."),
        Answers(),
        "Unschedulable",
        False,
        ["lower nodes, node.cpu or node.memory"],
    ),
    "labels that some machine has": (unscheduled(AFFINITY), Answers(), "Unschedulable", False, [INTEL, "placement"]),
    "a label that no machine has": (
        unscheduled(AFFINITY),
        Answers(absent_labels=(INTEL,)),
        "LabelMissing",
        False,
        [f"No machine has the label {INTEL};", "node-feature-discovery", "cpu: Any"],
    ),
    "a claim that is not there": (
        unscheduled('0/2 nodes are available: persistentvolumeclaim "models" not found.'),
        Answers(),
        "ClaimMissing",
        True,
        ["models", "create it"],
    ),
    "an image that is not there": (
        waits("ImagePullBackOff", "not found"),
        Answers(),
        "ImagePull",
        False,
        ["registry", "not found"],
    ),
    "an image without a name": (waits("InvalidImageName", "x"), Answers(), "ImagePull", True, ["check its name"]),
    "a Secret that is not there": (
        waits("PodInitializing"),
        Answers(warnings={"pod-0": 'MountVolume.SetUp failed: secret "a-hub-token" not found'}),
        "SecretMissing",
        True,
        ["spec.hubTokenSecret", "key token"],
    ),
    "a volume that does not come": (
        waits("ContainerCreating"),
        Answers(warnings={"pod-0": "AttachVolume.Attach failed: timed out"}),
        "VolumeNotReady",
        False,
        ["timed out"],
    ),
    "a hub that does not answer": (
        {
            **waits("CrashLoopBackOff"),
            "fetch_exit": Exit(code=75, reason="Error", message="no route\n", finished_at=None),
        },
        Answers(),
        "FetchFailing",
        False,
        ["hub", "tries again", "no route"],
    ),
    "a container that is refused": (
        waits("CreateContainerConfigError", "no"),
        Answers(),
        "ContainerRefused",
        True,
        ["no"],
    ),
}


@pytest.mark.parametrize("case", PODS.values(), ids=PODS)
def test_a_pod_waits_for(case: Pods, make: Make) -> None:
    fields, answers, reason, stuck, words = case
    found = stall.diagnose(make.active(pods=(make.pending(**fields),), answers=answers))
    assert found is not None
    assert (found.reason, found.stuck) == (reason, stuck)
    assert all(word in found.message for word in words)


QUIET: dict[str, dict[str, Any]] = {
    "it was created just now": {"unscheduled": "no", "seconds": 1},
    "it is being created": waits("ContainerCreating"),
    "it is leaving": {"deleting": True, **waits("ImagePullBackOff")},
    "its container is started again": waits("CrashLoopBackOff"),
}


@pytest.mark.parametrize("fields", QUIET.values(), ids=QUIET)
def test_nothing_is_said_of_a_pod_while(fields: dict[str, Any], make: Make) -> None:
    seconds = fields.pop("seconds", 100)
    pod = make.pending(created=make.at(-seconds), **fields)
    assert stall.diagnose(make.active(pods=(pod,))) is None


def missing(make: Make, warning: str, seconds: float = 5) -> Observed:
    status = make.running_status(startTime=make.stamp(-seconds))
    return make.active("nodes=2", status=status, pods=(make.pod(0),), answers=Answers(warnings={"set-uid": warning}))


WARNINGS = {
    "the quota": ('pods "mrpc-1" is forbidden: exceeded quota: q', "QuotaExceeded", False),
    "Pod Security": ('pods "mrpc-1" is forbidden: violates PodSecurity "restricted"', "PodSecurity", True),
    "an admission webhook": ("admission webhook x denied the request", "PodsRefused", True),
}


@pytest.mark.parametrize(("warning", "reason", "stuck"), WARNINGS.values(), ids=WARNINGS)
def test_pods_are_missing_because_of(warning: str, reason: str, stuck: bool, make: Make) -> None:  # noqa: FBT001
    found = stall.diagnose(missing(make, warning))
    assert found is not None
    assert (found.reason, found.stuck) == (reason, stuck)
    assert warning in found.message


def test_an_old_warning_counts_only_while_pods_are_missing(make: Make) -> None:
    assert stall.diagnose(replace(missing(make, "exceeded quota"), pods=(make.pod(0), make.pod(1)))) is None


def test_the_way_from_a_new_job_to_its_pods_asks_nobody(make: Make) -> None:
    asked = stall.questions(make.observed())
    assert (asked.claims, asked.events_of, asked.labels) == ((), (), ())


ASKED: dict[str, tuple[list[str], dict[str, Any], dict[str, tuple[str, ...]]]] = {
    "claims that several pods would share": (["nodes=2"], {"children": {}}, {"claims": ("models", "data")}),
    "events of the set when pods are missing": (["nodes=2"], {"pods": ()}, {"events_of": ("set-uid",)}),
    "nothing while all pods run": ([], {}, {}),
}


@pytest.mark.parametrize(("changes", "fields", "expected"), ASKED.values(), ids=ASKED)
def test_looked_up_are(
    changes: list[str], fields: dict[str, Any], expected: dict[str, tuple[str, ...]], make: Make
) -> None:
    asked = stall.questions(make.active(*changes, **fields))
    found = {"claims": asked.claims, "events_of": asked.events_of, "labels": asked.labels}
    assert {key: value for key, value in found.items() if value} == expected


def test_labels_are_looked_up_when_the_scheduler_says_that_they_do_not_fit(make: Make) -> None:
    asked = stall.questions(make.active("placement.features=[AMXBF16]", pods=(make.pending(unscheduled=AFFINITY),)))
    assert asked.labels == (INTEL, "feature.node.kubernetes.io/cpu-cpuid.AMXBF16=true")


def test_events_are_looked_up_for_a_few_pods_that_wait_long_for_their_volumes(make: Make) -> None:
    pods = tuple(make.pending(index, **waits("ContainerCreating")) for index in range(9))
    assert stall.questions(make.active("nodes=9", pods=pods)).events_of == ("pod-0", "pod-1", "pod-2")
    young = tuple(replace(pod, created=make.at(-3)) for pod in pods)
    assert stall.questions(make.active("nodes=9", pods=young)).events_of == ()


ENDS = {"suspended": (["nodes=2", "runPolicy.suspend=true"], None), "ended": (["nodes=2"], "Complete")}


@pytest.mark.parametrize(("changes", "kind"), ENDS.values(), ids=ENDS)
def test_nothing_is_looked_up_for_a_job_that_is(changes: list[str], kind: str | None, make: Make) -> None:
    status = make.ended_status(kind) if kind else None
    asked = stall.questions(make.active(*changes, status=status, pods=()))
    assert (asked.claims, asked.events_of) == ((), ())


def test_pods_that_do_not_run_are_looked_at_again(make: Make) -> None:
    assert stall.recheck(make.active()) is None
    assert stall.recheck(make.observed()) == stall.PATIENCE_SECONDS + 1
    assert stall.recheck(make.active(pods=())) == stall.RECHECK_SECONDS


def test_every_message_is_printable_and_short(make: Make) -> None:
    found = stall.diagnose(make.active(pods=(make.pending(unscheduled="bad\x1b[31m\n" + "x" * 9999),)))
    assert found is not None
    assert "\x1b" not in found.message
    assert len(found.message) < 2048
