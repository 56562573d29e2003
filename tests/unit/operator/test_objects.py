"""The children: what they hold, and when they change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.job import parse
from cpufinetune.job.quantity import to_bytes
from cpufinetune_operator import names
from cpufinetune_operator.plan import objects

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

HEX = "0123456789abcdef0123456789abcdef01234567"
HUB_MODEL = f"model={{name: bert, revision: {HEX}}}"
HUB_DATA = f"dataset={{name: glue, revision: {HEX}}}"


def built(make: Make, *changes: str) -> dict[str, Any]:
    job = make.job(*changes)
    assert job.spec is not None
    return objects.stateful_set(job, job.spec, make.settings)


def pod_of(make: Make, *changes: str) -> dict[str, Any]:
    spec: dict[str, Any] = built(make, *changes)["spec"]["template"]["spec"]
    return spec


def trainer(make: Make, *changes: str) -> dict[str, Any]:
    container: dict[str, Any] = pod_of(make, *changes)["containers"][0]
    return container


def mounts(container: dict[str, Any]) -> dict[str, bool]:
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}


def volume(make: Make, name: str, *changes: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {one["name"]: one for one in pod_of(make, *changes)["volumes"]}
    return found.get(name, {})


def test_the_set_starts_all_pods_at_once_and_replaces_none_that_is_there(make: Make) -> None:
    spec = built(make, "nodes=3")["spec"]
    assert spec["replicas"] == 3
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["serviceName"] == "mrpc"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_names_and_labels_are_those_of_the_contract(make: Make) -> None:
    job = make.job()
    assert job.spec is not None
    children = [objects.service(job), objects.network_policy(job, job.spec, make.settings), built(make)]
    for child in children:
        assert (child["metadata"]["name"], child["metadata"]["namespace"]) == ("mrpc", "ml")
        assert child["metadata"]["labels"] == {
            "app.kubernetes.io/name": "cpufinetune",
            "app.kubernetes.io/managed-by": "cpufinetune-operator",
            "cpufinetune.dev/job": "mrpc",
        }
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (make.uid, True, True)
    template = children[2]["spec"]["template"]["metadata"]["labels"]
    assert template.items() >= {**children[2]["metadata"]["labels"], "cpufinetune.dev/job-uid": make.uid}.items()
    assert children[2]["spec"]["selector"]["matchLabels"].items() <= template.items()


def test_the_service_gives_names_to_pods_that_are_not_ready(make: Make) -> None:
    spec = objects.service(make.job())["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["ipFamilyPolicy"] == "PreferDualStack"


def test_the_trainer_is_called_and_placed_as_the_launcher_expects(make: Make) -> None:
    container = trainer(make)
    assert container["args"] == ["pod"]
    assert "command" not in container
    assert container["image"] == "trainer:1"
    assert mounts(container) == {
        "/etc/cpufinetune": True,
        "/scratch": False,
        "/tmp": False,  # noqa: S108 - a pod's
        "/dev/shm": False,  # noqa: S108 - a pod's
        "/model": True,
        "/data": True,
        "/output": False,
    }
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment == {
        "HOME": "/tmp",  # noqa: S108 - a pod's
        "HF_HOME": "/scratch/hf",
        "XDG_CACHE_HOME": "/scratch/cache",
        "MPLCONFIGDIR": "/scratch/mpl",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "coordinator": 29400,
        "report": 8080,
    }


def test_requests_are_limits_for_every_container(make: Make) -> None:
    pod = pod_of(make, HUB_MODEL, "node={cpu: 8, memory: 16Gi}")
    for container in [*pod["containers"], *pod["initContainers"]]:
        amounts = {"cpu": "8", "memory": "16Gi"}
        assert container["resources"] == {"requests": amounts, "limits": amounts}


def test_resources_have_defaults(make: Make) -> None:
    assert trainer(make)["resources"]["limits"] == {"cpu": "1", "memory": "4Gi"}


def test_shared_memory_is_a_sized_memory_volume_within_the_memory(make: Make) -> None:
    shm = volume(make, "shm", "node={memory: 8Gi, sharedMemory: 3Gi}")["emptyDir"]
    assert shm == {"medium": "Memory", "sizeLimit": "3Gi"}
    assert to_bytes(shm["sizeLimit"]) < to_bytes("8Gi")


def test_pods_read_the_document_that_the_trainer_can_parse(make: Make) -> None:
    job = make.job("nodes=2", "runPolicy={suspend: true, ttlSecondsAfterFinished: 9, backoffLimit: 3}")
    assert job.spec is not None
    template = objects.stateful_set(job, job.spec, make.settings)["spec"]["template"]
    document = json.loads(template["metadata"]["annotations"]["cpufinetune.dev/job"])
    assert document["metadata"] == {"name": "mrpc", "namespace": "ml", "uid": make.uid}
    read = parse(document)
    assert read.spec.nodes == 2
    assert read.spec.run_policy.backoff_limit == 3
    assert not read.spec.run_policy.suspend
    (item,) = next(one for one in template["spec"]["volumes"] if one["name"] == "job")["downwardAPI"]["items"]
    assert item["path"] == "job.yaml"
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['cpufinetune.dev/job']"


OUTPUTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "ephemeral": ([], {"name": "output", "emptyDir": {}}),
    "a claim": (
        ["output={claim: results}"],
        {"name": "output", "persistentVolumeClaim": {"claimName": "results"}},
    ),
    "a volume of its own comes from the set": (["output={volume: {size: 10Gi}}"], {}),
}


@pytest.mark.parametrize(("changes", "expected"), OUTPUTS.values(), ids=OUTPUTS)
def test_output_goes_to(changes: list[str], expected: dict[str, Any], make: Make) -> None:
    assert volume(make, "output", *changes) == expected


def test_a_volume_belongs_to_the_job_and_outlives_pods_and_set(make: Make) -> None:
    (claim,) = built(make, "output={volume: {size: 10Gi, storageClassName: gp3}}")["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "output"
    assert claim["spec"]["storageClassName"] == "gp3"
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi"
    (owner,) = claim["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "mrpc", "uid": make.uid}


STORAGE_CLASSES = {"none given": ("{size: 1Gi}", None), "none at all": ('{size: 1Gi, storageClassName: ""}', "")}


@pytest.mark.parametrize(("volume_", "expected"), STORAGE_CLASSES.values(), ids=STORAGE_CLASSES)
def test_no_storage_class_is_not_the_empty_one(volume_: str, expected: str | None, make: Make) -> None:
    (claim,) = built(make, f"output={{volume: {volume_}}}")["spec"]["volumeClaimTemplates"]
    assert claim["spec"].get("storageClassName") == expected


FETCHES = {"a hub model": [HUB_MODEL], "a hub dataset": [HUB_DATA], "both": [HUB_MODEL, HUB_DATA]}


@pytest.mark.parametrize("changes", FETCHES.values(), ids=FETCHES)
def test_the_hub_needs_a_fetch(changes: list[str], make: Make) -> None:
    (fetch,) = pod_of(make, *changes)["initContainers"]
    assert (fetch["name"], fetch["args"]) == ("fetch", ["fetch"])
    assert "HF_HUB_OFFLINE" not in {one["name"] for one in fetch["env"]}


def test_claims_need_no_fetch(make: Make) -> None:
    assert "initContainers" not in pod_of(make)


def test_the_token_reaches_fetch_alone(make: Make) -> None:
    changes = [HUB_MODEL, "hubTokenSecret=team-hub-token"]
    pod = pod_of(make, *changes)
    assert volume(make, "hub-token", *changes)["secret"]["secretName"] == "team-hub-token"
    assert mounts(pod["initContainers"][0])["/var/run/secrets/cpufinetune"] is True
    assert not any("secrets" in path for path in mounts(pod["containers"][0]))


def test_a_token_that_nothing_needs_is_not_mounted(make: Make) -> None:
    assert volume(make, "hub-token", "hubTokenSecret=team-hub-token") == {}


def expressions(make: Make, *changes: str) -> list[dict[str, Any]]:
    affinity = pod_of(make, *changes).get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [expression for term in terms for expression in term["matchExpressions"]]


XEON = {"key": "feature.node.kubernetes.io/cpu-model.vendor_id", "operator": "In", "values": ["Intel"]}
BF16 = {"key": "feature.node.kubernetes.io/cpu-cpuid.AVX512BF16", "operator": "In", "values": ["true"]}
MACHINES: dict[str, tuple[list[str], list[dict[str, Any]]]] = {
    "Xeons by default": ([], [XEON]),
    "Xeons with an instruction set": (["placement.features=[AVX512BF16]"], [XEON, BF16]),
    "any with an instruction set": (["placement={cpu: Any, features: [AVX512BF16]}"], [BF16]),
    "any": (["placement={cpu: Any}"], []),
    "rather Xeons": (["placement={cpu: PreferXeon}"], []),
}


@pytest.mark.parametrize(("changes", "expected"), MACHINES.values(), ids=MACHINES)
def test_machines_must_be(changes: list[str], expected: list[dict[str, Any]], make: Make) -> None:
    assert expressions(make, *changes) == expected


def test_rather_xeons_is_a_preference(make: Make) -> None:
    affinity = pod_of(make, "placement={cpu: PreferXeon}")["affinity"]["nodeAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchExpressions"] == [XEON]


def test_pods_are_spread_over_machines_unless_told_otherwise(make: Make) -> None:
    (apart,) = pod_of(make)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"]["cpufinetune.dev/job-uid"] == make.uid
    assert "podAntiAffinity" not in pod_of(make, "placement.spread=None")["affinity"]
    assert "affinity" not in pod_of(make, "placement={cpu: Any, spread: None}")


def test_the_rest_of_placement_is_passed_on(make: Make) -> None:
    pod = pod_of(
        make,
        "placement.nodeSelector={pool: training}",
        "placement.priorityClassName=low",
        "placement.tolerations=[{key: dedicated, value: training, effect: NoSchedule}]",
    )
    assert pod["nodeSelector"] == {"pool": "training"}
    assert pod["priorityClassName"] == "low"
    assert pod["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}
    ]


def seals(make: Make, *changes: str) -> tuple[str, str]:
    annotations = built(make, *changes)["metadata"]["annotations"]
    return annotations[names.ANNOTATION_HASH], annotations[names.ANNOTATION_SHAPE]


CHANGES: dict[str, tuple[list[str], bool, bool]] = {
    "nothing": ([], False, False),
    "what pods do not see": (["runPolicy={suspend: true, ttlSecondsAfterFinished: 1, cleanPods: Never}"], False, False),
    "hyperparameters": (["training.epochs=9"], True, False),
    "the size of a node": (["node.cpu=9"], True, False),
    "a volume": (["output={volume: {size: 1Gi}}"], True, True),
}


@pytest.mark.parametrize(("changes", "new", "new_shape"), CHANGES.values(), ids=CHANGES)
def test_the_seals_tell_of_a_change_of(changes: list[str], new: bool, new_shape: bool, make: Make) -> None:  # noqa: FBT001
    before, after = seals(make), seals(make, *changes)
    assert (before[0] != after[0], before[1] != after[1]) == (new, new_shape)


def test_children_of_equal_jobs_are_equal(make: Make) -> None:
    assert built(make) == built(make)
