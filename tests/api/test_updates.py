"""Changes to an object: which are taken while it runs, and that user and controller stay out of each other's way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api, Build, Document

USER, CONTROLLER = "kubectl", "cpufinetune"

FIXED: dict[str, dict[str, Any]] = {
    "model": {"name": None, "revision": None, "claim": "models"},
    "dataset": {"config": "rte"},
    "task": {"maxLength": 64},
    "training": {"lora": {"targets": ["q_lin"]}},
}

# What may change at any time.
FREE: dict[str, dict[str, Any]] = {
    "more nodes": {"nodes": 4},
    "suspension": {"runPolicy": {"suspend": True}},
    "more patience": {"runPolicy": {"backoffLimit": 0, "stallSeconds": 60}},
    "a deadline": {"runPolicy": {"activeDeadlineSeconds": 3600}},
    "what becomes of it": {"runPolicy": {"ttlSecondsAfterFinished": 0, "cleanPods": "Never"}},
    "the defaults written out": {"training": {"epochs": 3.0, "evaluateEvery": "Epoch"}, "task": {"maxLength": 128}},
    "nothing in place of the defaults": {"training": None, "runPolicy": None},
}

WHILE_SUSPENDED: dict[str, dict[str, Any]] = {
    **FIXED,
    "node": {"cpu": 8, "memory": "16Gi"},
    "placement": {"cpu": "Any"},
    "output": {"ephemeral": False, "volume": {"size": "1Gi"}},
}

STATUS: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Running",
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Training",
            "message": "2 of 2 nodes train",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "attempt": 2,
    "restarts": 1,
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T01:00:00Z",
    "progress": {
        "step": 120,
        "totalSteps": 345,
        "epoch": 1.04,
        "loss": 0.4321,
        "metric": 0.875,
        "samplesPerSecond": 64.5,
        "etaSeconds": 90,
        "lastHeartbeatTime": "2026-01-01T00:59:59Z",
    },
    "layout": {
        "ranks": 2,
        "threads": 15,
        "cores": 32,
        "backend": "CCL",
        "precision": "BFloat16",
        "isa": "AMX_BF16",
        "pinned": True,
    },
    "ranks": [
        {
            "rank": 1,
            "node": "worker-1",
            "lastExit": {"reason": "OOMKilled", "code": 137, "message": "Killed", "time": "2026-01-01T00:30:00Z"},
        }
    ],
    "result": {"path": "mrpc/model", "metrics": {"Accuracy": 0.84, "Loss": 1.5}, "checksum": "sha256:00", "bytes": 9},
}

BAD_STATUS: dict[str, tuple[dict[str, Any], str]] = {
    "a condition without a reason": (
        {"conditions": [{"type": "Ready", "status": "True"}]},
        "status.conditions[0].reason: Required value",
    ),
    "a reason in two words": (
        {"conditions": [{**STATUS["conditions"][0], "reason": "Not ready"}]},
        'status.conditions[0].reason: Invalid value: "Not ready"',
    ),
    "a condition twice": (
        {"conditions": STATUS["conditions"] * 2},
        'status.conditions[1]: Duplicate value: {"type":"Ready"}',
    ),
    "a metric in percent": (
        {"progress": {"metric": 87.5}},
        "status.progress.metric: Invalid value: 87.5",
    ),
    "ranks without end": ({"ranks": [{"rank": rank} for rank in range(257)]}, "status.ranks: Too many"),
    "an unknown field": ({"progress": {"steps": 1}}, 'unknown field "status.progress.steps"'),
}


def spec_of(job: Document, **spec: object) -> Document:
    """The document with which the job's user would apply these changes."""
    return bare(job, spec={**{field: job["spec"][field] for field in ("model", "dataset", "task")}, **spec})


def bare(job: Document, **parts: object) -> Document:
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {"name": job["metadata"]["name"]},
        **parts,
    }


def owned(job: Document) -> dict[str, set[str]]:
    """Top-level fields that each manager owns."""
    return {entry["manager"]: set(entry["fieldsV1"]) - {"f:metadata"} for entry in job["metadata"]["managedFields"]}


@pytest.fixture
def applied(apiserver: Cluster, api: Api, document: Build, new_name: Callable[[], str]) -> Document:
    """A job that its user applied on the server's side and whose status the controller applied."""
    name = new_name()
    text = json.dumps(document(f"metadata.name={name}", "nodes=2", "training.evaluateEvery=50"))
    apiserver.kubectl("--namespace", api.namespace, "apply", "--server-side", "-f", "-", stdin=text)
    job = api.get(name)
    return api.apply(bare(job, status=STATUS), CONTROLLER, "/status").object


@pytest.fixture(scope="module")
def running(live: Build) -> Document:
    return live()


@pytest.fixture(scope="module")
def suspended(live: Build) -> Document:
    return live("runPolicy.suspend=true")


@pytest.mark.parametrize("field", FIXED)
@pytest.mark.parametrize(
    ("was", "is_now", "taken"),
    [(False, False, False), (True, False, False), (False, True, False), (True, True, True)],
    ids=["while it runs", "with its resumption", "with its suspension", "while it is suspended"],
)
def test_what_is_learnt_changes(
    field: str, api: Api, running: Document, suspended: Document, *, was: bool, is_now: bool, taken: bool
) -> None:
    job = suspended if was else running
    patch = {"spec": {"runPolicy": {"suspend": is_now}, field: FIXED[field]}}
    answer = api.merge(job["metadata"]["name"], patch, dryRun="All")
    assert answer.refused is not taken, answer.message
    if not taken:
        said = f"{field} can only change while the job is suspended; set runPolicy.suspend to true first"
        assert answer.message.endswith(f"is invalid: spec.{field}: Invalid value: {said}")


@pytest.mark.parametrize("patch", FREE.values(), ids=FREE)
def test_a_running_job_takes(patch: dict[str, Any], api: Api, running: Document) -> None:
    assert api.merge(running["metadata"]["name"], {"spec": patch}, dryRun="All").object


@pytest.mark.parametrize("field", WHILE_SUSPENDED)
def test_a_suspended_job_takes_a_change_of(field: str, api: Api, suspended: Document) -> None:
    changed = api.merge(suspended["metadata"]["name"], {"spec": {field: WHILE_SUSPENDED[field]}}, dryRun="All").object
    assert changed["spec"][field] != suspended["spec"].get(field)
    assert changed["metadata"]["generation"] == 2


def test_a_change_must_be_valid_like_a_new_document(api: Api, running: Document) -> None:
    answer = api.merge(running["metadata"]["name"], {"spec": {"nodes": 0}}, dryRun="All")
    assert "spec.nodes in body should be greater than or equal to 1" in answer.message


def test_adapters_may_be_named_in_another_order(api: Api, live: Build) -> None:
    job = live("training.lora={targets: [q_lin, v_lin]}")
    patch = {"spec": {"training": {"lora": {"targets": ["v_lin", "q_lin"]}}}}
    assert api.merge(job["metadata"]["name"], patch, dryRun="All").object


def test_a_job_goes_through_suspension_to_other_hyperparameters(api: Api, live: Build) -> None:
    name = live()["metadata"]["name"]
    for spec in ({"runPolicy": {"suspend": True}}, {"training": {"seed": 7}}, {"runPolicy": {"suspend": False}}):
        job = api.merge(name, {"spec": spec}).object
    assert (job["spec"]["training"]["seed"], job["metadata"]["generation"]) == (7, 4)
    assert api.merge(name, {"spec": {"training": {"seed": 8}}}).refused


def test_the_status_of_the_design_is_kept_whole(applied: Document) -> None:
    assert applied["status"] == STATUS
    assert applied["metadata"]["generation"] == 1


@pytest.mark.parametrize(("status", "words"), BAD_STATUS.values(), ids=BAD_STATUS)
def test_a_status_is_refused(status: dict[str, Any], words: str, api: Api, running: Document) -> None:
    path = f"{api.jobs}/{running['metadata']['name']}/status"
    answer = api.request("PATCH", path, {"status": status}, "merge-patch+json", dryRun="All")
    assert answer.refused
    assert words in answer.message


def test_user_and_controller_own_different_fields(applied: Document) -> None:
    assert owned(applied) == {USER: {"f:spec"}, CONTROLLER: {"f:status"}}
    assert [entry.get("subresource") for entry in applied["metadata"]["managedFields"]] == ["status", None]


def test_a_user_applies_again_without_conflict_and_the_status_stays(
    applied: Document, api: Api, apiserver: Cluster
) -> None:
    wanted = {**spec_of(applied, nodes=3, training={"evaluateEvery": 50}), "status": {"phase": "Complete"}}
    apply = ("--namespace", api.namespace, "apply", "--server-side", "-f", "-")
    apiserver.kubectl(*apply, stdin=json.dumps(wanted))
    job = api.get(applied["metadata"]["name"])
    assert (job["spec"]["nodes"], job["metadata"]["generation"], job["status"]) == (3, 2, STATUS)
    assert owned(job) == owned(applied)


def test_a_field_that_a_user_no_longer_applies_goes_back_to_its_default(applied: Document, api: Api) -> None:
    wanted = spec_of(applied, training={"evaluateEvery": 50})
    assert api.apply(wanted, USER).object["spec"]["nodes"] == 1


def test_applying_an_unknown_field_on_the_servers_side_is_refused(applied: Document, api: Api) -> None:
    answer = api.apply(spec_of(applied, epochs=3), USER)
    assert ".spec.epochs: field not declared in schema" in answer.message


def test_the_controllers_apply_cannot_change_spec(applied: Document, api: Api) -> None:
    wanted = bare(applied, spec={"nodes": 9, "runPolicy": {"suspend": True}}, status={**STATUS, "restarts": 2})
    job = api.apply(wanted, CONTROLLER, "/status", force="true").object
    assert (job["spec"], job["metadata"]["generation"]) == (applied["spec"], 1)
    assert job["status"]["restarts"] == 2
    assert owned(job) == owned(applied)


def test_the_controller_takes_back_what_it_no_longer_applies_and_leaves_what_others_added(
    applied: Document, api: Api
) -> None:
    audited = {**STATUS["conditions"][0], "type": "Audited"}
    api.apply(bare(applied, status={"conditions": [audited]}), "auditor", "/status")
    kept = {name: value for name, value in STATUS.items() if name not in {"ranks", "completionTime"}}
    job = api.apply(bare(applied, status=kept), CONTROLLER, "/status").object
    assert job["status"] == {**kept, "conditions": [*kept["conditions"], audited]}


def test_an_edit_of_the_whole_object_leaves_the_status_alone(
    applied: Document, api: Api, apiserver: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_EDITOR", "sed -i -e 's/nodes: 2/nodes: 3/' -e 's/phase: Running/phase: Failed/'")
    apiserver.kubectl("--namespace", api.namespace, "edit", "cft", applied["metadata"]["name"])
    job = api.get(applied["metadata"]["name"])
    assert (job["spec"]["nodes"], job["status"]) == (3, STATUS)
    assert owned(job) == {**owned(applied), "kubectl-edit": {"f:spec"}}


def test_applying_on_the_clients_side_leaves_the_status_alone(document: Build, api: Api, apiserver: Cluster) -> None:
    apply = ("--namespace", api.namespace, "apply", "-f", "-")
    apiserver.kubectl(*apply, stdin=json.dumps(document("metadata.name=client", "nodes=2")))
    api.see("client", **STATUS)
    apiserver.kubectl(*apply, stdin=json.dumps(document("metadata.name=client")))
    assert (api.get("client")["spec"]["nodes"], api.get("client")["status"]) == (1, STATUS)
