"""What the API server takes, what it fills in, and what kubectl shows of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpufinetune.job.schema import Schema, structural_schema, with_defaults
from cpufinetune.job.validate import validate
from cpufinetune.job.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api, Build

ROOT = Path(__file__).parents[2]
EXAMPLES = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "manifests" / "examples").rglob("*.yaml"))}
HEX = "0123456789abcdef0123456789abcdef01234567"
FILES = "files: {train: train.csv}"

ACCEPTED = {
    "the smallest document": [],
    "a model of a claim's root": ["model={claim: models}"],
    "a model in a folder of a claim": ["model={claim: models, path: bert/tiny}"],
    "a local model": ["model={path: ../minilm}"],
    "a local model at an absolute path": ["model={path: /srv/minilm}"],
    "hub splits": ["dataset.splits={train: train, validation: dev, test: dev}"],
    "files of a claim": [f"dataset={{claim: data, path: reviews, {FILES}}}"],
    "local files in folders": ["dataset={path: ., files: {train: a/b.jsonl, validation: .hidden/c.parquet}}"],
    "one column": ["task.text=[sentence]"],
    "evaluation by steps": ["training.evaluateEvery=50"],
    "no evaluation": ["training.evaluateEvery=Never"],
    "a micro batch as large as the batch": ["training={batchSize: 8, microBatchSize: 8}"],
    "adapters": ["training.lora={targets: [q_lin, v_lin]}"],
    "as many ranks as CPUs": ["node={cpu: 8, ranks: 8}"],
    "ranks without a number of CPUs": ["node.ranks=4"],
    "fractions of a unit": ["node.memory=1.5Gi", "output={volume: {size: 0x40G}}", "output.volume.size=1.25Ti"],
    "a stall limit": ["runPolicy.stallSeconds=30"],
    "nulls where defaults are": ["training=null", "node={cpu: null, ranks: null}", "runPolicy={suspend: null}"],
    "a new volume": ["output={volume: {size: 10Gi, storageClassName: ''}}"],
    "a claim for output": ["output={claim: results.2026, path: mrpc}"],
    "a toleration of everything": ["placement.tolerations=[{operator: Exists}]"],
    "a toleration for a while": ["placement.tolerations=[{key: a.b/c, effect: NoExecute, tolerationSeconds: 9}]"],
    "a selector": [r"placement.nodeSelector.kubernetes\.io/arch=amd64", "placement.nodeSelector.pool=''"],
    "an image and a token": ["image=ghcr.io/a/b:1@sha256:00", "hubTokenSecret=a.b-hub-token"],
    "a name of forty characters": [f"metadata.name={'a' * 40}"],
    "labels and annotations": ["metadata.labels={a/b: null, c: D.e}", "metadata.annotations={A.B/C: 'd e', f: null}"],
}

# Written out here, so that a change of a default shows as one.
DEFAULTS: dict[str, object] = {
    "dataset.validationFraction": 0.1,
    "task.type": "TextClassification",
    "task.maxLength": 128,
    "task.metric": "Accuracy",
    "training": {
        "epochs": 3,
        "batchSize": 32,
        "learningRate": 2e-5,
        "schedule": "Linear",
        "warmupRatio": 0.06,
        "weightDecay": 0.01,
        "maxGradNorm": 1,
        "precision": "Auto",
        "intel": "Auto",
        "gradientCompression": "None",
        "seed": 42,
        "evaluateEvery": "Epoch",
        "checkpointEvery": 200,
    },
    "nodes": 1,
    "node": {"ranks": "Auto", "backend": "Auto", "sharedMemory": "2Gi"},
    "placement": {"cpu": "Xeon", "features": [], "spread": "Node", "nodeSelector": {}, "tolerations": []},
    "output": {"ephemeral": True},
    "runPolicy": {"suspend": False, "backoffLimit": 6, "stallSeconds": "Auto", "cleanPods": "Always"},
}

SEEN = {
    "observedGeneration": 1,
    "phase": "Running",
    "restarts": 2,
    "progress": {"step": 120, "loss": 0.25, "metric": 0.875, "samplesPerSecond": 64.5, "etaSeconds": 90},
    "layout": {"backend": "Gloo"},
}


def true(kind: str) -> dict[str, str]:
    """A condition that holds."""
    said = {"reason": "Seen", "message": "it is so", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"type": kind, "status": "True", **said}


def objects(node: Schema, path: str) -> Iterator[str]:
    """Every field that has fields of its own."""
    node = node.get("items", node)
    if "properties" in node:
        yield path
    for name, field in node.get("properties", {}).items():
        yield from objects(field, f"{path}.{name}")


OBJECTS = [path for part in ("spec", "status") for path in objects(structural_schema()["properties"][part], part)]


@pytest.mark.parametrize("path", EXAMPLES.values(), ids=EXAMPLES)
def test_takes_every_document_of_the_example(path: Path, api: Api, apiserver: Cluster) -> None:
    documents = [read_yaml(text, str(path)) for text in re.split(r"(?m)^---$", path.read_text(encoding="utf-8"))]
    done = apiserver.kubectl("--namespace", api.namespace, "apply", "--dry-run=server", "-f", str(path))
    names = re.findall(r"(?m)^cpufinetune.cpufinetune.dev/(\S+) created \(server dry run\)$", done)
    assert names == [document["metadata"]["name"] for document in documents]
    assert [validate(document) for document in documents] == [()] * len(documents)


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_takes_and_fills_in_what_the_offline_side_does(changes: list[str], api: Api, document: Build) -> None:
    given = document(*changes)
    assert validate(given) == ()
    assert api.try_out(given).object["spec"] == with_defaults(given)["spec"]


@pytest.mark.parametrize("path", DEFAULTS)
def test_fills_in_the_default_of(path: str, api: Api, document: Build) -> None:
    value = api.try_out(document()).object["spec"]
    for name in path.split("."):
        value = value[name]
    assert value == DEFAULTS[path]


def test_fills_in_the_defaults_of_what_is_given_in_part(api: Api, document: Build) -> None:
    changes = ("training.lora={targets: [a]}", "output={claim: a}", "placement.tolerations=[{key: a}]")
    spec = api.try_out(document(*changes)).object["spec"]
    assert spec["training"]["lora"] == {"rank": 8, "alpha": 16, "dropout": 0, "targets": ["a"]}
    assert spec["output"] == {"claim": "a", "ephemeral": False}
    assert spec["placement"]["tolerations"] == [{"key": "a", "operator": "Equal"}]


def test_a_new_object_says_that_nobody_has_looked_at_it(api: Api, document: Build) -> None:
    assert api.try_out(document()).object["status"] == {"observedGeneration": -1}
    assert api.try_out({**document(), "status": {"phase": "Complete"}}).object["status"] == {"observedGeneration": -1}


def test_kubectl_prints_the_columns_of_the_design(api: Api, live: Build, apiserver: Cluster) -> None:
    name = live()["metadata"]["name"]
    api.see(name, conditions=[true("Ready")], **SEEN)
    get = ("--namespace", api.namespace, "get", "cft", name)
    head, row = (line.split() for line in apiserver.kubectl(*get).splitlines())
    assert " ".join(head) == "NAME PHASE READY STEP LOSS METRIC SPEED ETA AGE"
    assert row[:-1] == [name, "Running", "True", "120", "0.25", "0.875", "64.5", "90"]
    head, row = (line.split() for line in apiserver.kubectl(*get, "-o", "wide").splitlines())
    assert " ".join(head) == "NAME PHASE READY STEP LOSS METRIC SPEED ETA RESTARTS BACKEND AGE"
    assert row[-3:-1] == ["2", "Gloo"]


def test_kubectl_finds_jobs_by_short_name_category_and_phase(api: Api, live: Build, apiserver: Cluster) -> None:
    names = {phase: live()["metadata"]["name"] for phase in ("Pausing", "Paused")}
    for phase, name in names.items():
        api.see(name, phase=phase)
    for resource in ("cpufinetunes", "cpufinetune", "cft", "training"):
        found = apiserver.kubectl("--namespace", api.namespace, "get", resource, "-o", "name").split()
        assert {f"cpufinetune.cpufinetune.dev/{name}" for name in names.values()} <= set(found)
    chosen = ("get", "cft", "--field-selector=status.phase=Paused", "-o", "name")
    found = apiserver.kubectl("--namespace", api.namespace, *chosen).split()
    assert found == [f"cpufinetune.cpufinetune.dev/{names['Paused']}"]


@pytest.mark.parametrize("path", OBJECTS)
def test_kubectl_explains_every_field_of(path: str, api: Api, apiserver: Cluster) -> None:  # noqa: ARG001 - it serves
    said = apiserver.kubectl("explain", f"cpufinetune.{path}")
    node: Schema = structural_schema()
    for name in path.split("."):
        node = node["properties"][name]
        node = node.get("items", node)
    explained = re.findall(r"(?m)^  (\w+)\t<[^\n]*\n(?:  enum: [^\n]*\n)?    (\S[^\n]*)", said)
    assert sorted(node["properties"]) == [name for name, _ in explained]
    for name, line in explained:
        assert node["properties"][name]["description"].startswith(line)
    assert node["description"] in " ".join(said.split())


def test_kubectl_waits_for_the_end_of_a_job(api: Api, live: Build, apiserver: Cluster) -> None:
    name = live()["metadata"]["name"]
    wait = ("--namespace", api.namespace, "wait", "--for=condition=Complete", f"cft/{name}")
    early = apiserver.kubectl.attempt(*wait, "--timeout=1s")
    assert (early.returncode, early.stdout) == (1, "")
    assert early.stderr == f"error: timed out waiting for the condition on cpufinetunes/{name}\n"
    api.see(name, conditions=[true("Complete")])
    late = apiserver.kubectl.attempt(*wait, "--timeout=1s")
    assert late.returncode == 1, "a condition from before the last change of spec counts for nothing"
    api.see(name, observedGeneration=1)
    assert apiserver.kubectl(*wait, "--timeout=5s") == f"cpufinetune.cpufinetune.dev/{name} condition met\n"
