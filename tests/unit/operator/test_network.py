"""Who may talk to a job's pods, and to whom they may talk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpufinetune_operator.plan import objects
from cpufinetune_operator.settings import Settings

if TYPE_CHECKING:
    from tests.unit.operator.conftest import Make

HEX = "0123456789abcdef0123456789abcdef01234567"
HUB_MODEL = f"model={{name: bert, revision: {HEX}}}"


def policy(make: Make, *changes: str, namespace: str = "ops") -> dict[str, Any]:
    job = make.job(*changes)
    assert job.spec is not None
    settings = Settings(trainer_image="trainer:1", operator_namespace=namespace)
    spec: dict[str, Any] = objects.network_policy(job, job.spec, settings)["spec"]
    return spec


def test_only_peers_and_the_operator_get_in(make: Make) -> None:
    peers, operator = policy(make)["ingress"]
    assert peers["from"] == [{"podSelector": {"matchLabels": policy(make)["podSelector"]["matchLabels"]}}]
    (source,) = operator["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "ops"}
    assert source["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "cpufinetune-operator"}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8080}]


def test_an_operator_of_an_unknown_namespace_is_known_by_its_labels(make: Make) -> None:
    (source,) = policy(make, namespace="")["ingress"][1]["from"]
    assert source["namespaceSelector"] == {}


def test_pods_reach_the_world_only_to_fetch(make: Make) -> None:
    quiet = policy(make)["egress"]
    assert all("to" in rule or {port["port"] for port in rule["ports"]} <= {53, 5353} for rule in quiet)
    hub = policy(make, HUB_MODEL)["egress"][-1]
    assert hub["ports"] == [{"protocol": "TCP", "port": 443}]
    assert "169.254.0.0/16" in hub["to"][0]["ipBlock"]["except"]
