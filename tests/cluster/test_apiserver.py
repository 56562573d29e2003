"""An API server that runs alone: enough for the resource definition, its rules, and the controllers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from localcluster.cluster import Cluster

MANIFESTS = Path(__file__).parents[2] / "manifests"
EXAMPLES = sorted((MANIFESTS / "examples").glob("*.yaml"))


def test_the_resource_definition_is_accepted_and_served(apiserver: Cluster) -> None:
    apiserver.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "crd" / "cpufinetunes.yaml"))
    apiserver.kubectl("wait", "--for=condition=Established", "crd/cpufinetunes.cpufinetune.dev", "--timeout=20s")
    assert "No resources found" in apiserver.kubectl.attempt("get", "cft", "--all-namespaces").stderr


def test_a_stateful_set_gets_its_pods_without_nodes(apiserver: Cluster) -> None:
    labels = {"matchLabels": {"app": "s"}}
    template = {"metadata": {"labels": labels["matchLabels"]}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    spec = {"serviceName": "s", "replicas": 3, "podManagementPolicy": "Parallel", "selector": labels}
    workload = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}}
    apiserver.kubectl.create_namespace("alone", restricted=False)
    apiserver.kubectl.apply([{**workload, "spec": {**spec, "template": template}}], "--namespace", "alone")
    pods = ("--namespace", "alone", "pods")
    apiserver.kubectl.wait("three pods", lambda: len(apiserver.kubectl.get(*pods)["items"]) == 3, 20)
    apiserver.kubectl("delete", "namespace", "alone", "--wait=false")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_applies(apiserver: Cluster, example: Path) -> None:
    document = yaml.safe_load(example.read_text(encoding="utf-8"))
    done = apiserver.kubectl.attempt("apply", "--dry-run=server", "-f", str(example))
    assert done.returncode == 0, (document["metadata"], done.stderr)
