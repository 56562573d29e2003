"""Policies in the kernel: real rules in real network namespaces, and connections that are really tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import netlab
import pytest
from localcluster.kubectl import Kubectl
from localcluster.network import run
from localcluster.plan import ClusterError
from localcluster.policy import BRIDGED, Enforcer
from localcluster.policy_rules import TABLE, rules
from netlab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Object = dict[str, Any]

SOURCES = ("near", "far", "node-a", "node-b")
WEB = ("web:8080", "web:9090", "web:5353")
NAMESPACES: list[Object] = [
    {"metadata": {"name": "jobs"}},
    {"metadata": {"name": "other", "labels": {"team": "b"}}},
]
PLACES = {"web": ("jobs", "node-a"), "near": ("jobs", "node-a"), "far": ("other", "node-b")}
CLUSTER_IP = "10.64.128.5"


@pytest.fixture(name="lab", scope="module")
def fixture_lab() -> Iterator[Lab]:
    with netlab.lab() as made:
        yield made


@pytest.fixture(name="enforcer")
def fixture_enforcer(lab: Lab, tmp_path: Path) -> Iterator[Enforcer]:
    """Return an enforcer, and leave the nodes without rules."""
    enforcer = Enforcer(lab.cluster, Kubectl(tmp_path / "kubectl", tmp_path / "kubeconfig"))
    yield enforcer
    for node in lab.nodes:
        run("nft", "flush", "ruleset", namespace=node.namespace)


def pods(lab: Lab) -> list[Object]:
    spec: Object = {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]}
    return [
        {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"name": name}},
            "spec": {"nodeName": node, **spec},
            "status": {"phase": "Running", "podIP": lab.addresses[name]},
        }
        for name, (namespace, node) in PLACES.items()
    ]


def policy(chosen: str, spec: Object) -> Object:
    metadata = {"name": chosen, "namespace": PLACES[chosen][0]}
    return {"metadata": metadata, "spec": {"podSelector": {"matchLabels": {"name": chosen}}, **spec}}


def enforce(enforcer: Enforcer, lab: Lab, *policies: Object) -> None:
    for node, text in rules(policies, pods(lab), NAMESPACES).items():
        enforcer.apply(node, text)


def named(name: str, **more: Any) -> Object:
    return {"podSelector": {"matchLabels": {"name": name}}, **more}


def test_without_policies_all_reach_all(enforcer: Enforcer, lab: Lab) -> None:
    enforce(enforcer, lab)
    assert lab.reached(SOURCES, WEB) == {f"{source} {target}" for source in SOURCES for target in WEB}


@pytest.mark.parametrize(
    ("ingress", "reached"),
    [
        pytest.param([], set(), id="nobody by default"),
        pytest.param([{}], {f"{source} {target}" for source in SOURCES for target in WEB}, id="everybody"),
        pytest.param([{"from": [named("near")]}], {f"near {target}" for target in WEB}, id="a pod of the same node"),
        pytest.param(
            [{"from": [named("far", namespaceSelector={"matchLabels": {"team": "b"}})], "ports": [{"port": 8080}]}],
            {"far web:8080"},
            id="a pod of the other node, on one port",
        ),
        pytest.param(
            [{"from": [named("near")], "ports": [{"port": "http"}, {"port": 5353, "protocol": "UDP"}]}],
            {"near web:8080", "near web:5353"},
            id="a named port, and one of UDP",
        ),
        pytest.param(
            [{"ports": [{"port": 9000, "endPort": 9100}]}], {f"{one} web:9090" for one in SOURCES}, id="a range"
        ),
        pytest.param([{"ports": [{"protocol": "UDP"}]}], {f"{one} web:5353" for one in SOURCES}, id="a protocol"),
        pytest.param(
            [{"from": [{"ipBlock": {"cidr": "10.64.0.0/16", "except": ["10.64.12.0/24"]}}]}],
            {f"{source} {target}" for source in ("near", "node-b") for target in WEB},
            id="a block with an exception",
        ),
        pytest.param(
            [{"from": [named("near")]}, {"from": [{"namespaceSelector": {}}], "ports": [{"port": 8080}]}],
            {*(f"near {target}" for target in WEB), "far web:8080"},
            id="what any rule allows",
        ),
    ],
)
def test_ingress_lets_in(enforcer: Enforcer, lab: Lab, ingress: list[Object], reached: set[str]) -> None:
    enforce(enforcer, lab, policy("web", {"policyTypes": ["Ingress"], "ingress": ingress}))
    # What a node sends to its own pods is never filtered.
    assert lab.reached(SOURCES, WEB) == reached | {f"node-a {target}" for target in WEB}
    assert lab.reached(["web"], ["near:8080", "far:8080", "web:8080"]) == {
        "web near:8080",
        "web far:8080",
        "web web:8080",
    }


@pytest.mark.parametrize(
    ("egress", "reached"),
    [
        pytest.param([], set(), id="nowhere by default"),
        pytest.param([{"to": [named("web")]}], {"near web:8080", "near web:9090"}, id="a pod of the same node"),
        pytest.param(
            [{"to": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}], "ports": [{"port": "http"}]}],
            {"near far:8080"},
            id="a namespace on the other node, on a named port",
        ),
        pytest.param([{"ports": [{"port": 9090}]}], {"near web:9090", "near far:9090"}, id="a port of all"),
    ],
)
def test_egress_lets_out(enforcer: Enforcer, lab: Lab, egress: list[Object], reached: set[str]) -> None:
    enforce(enforcer, lab, policy("near", {"policyTypes": ["Egress"], "egress": egress}))
    assert lab.reached(["near"], ["web:8080", "web:9090", "far:8080", "far:9090"]) == reached
    assert lab.reached(["web", "far", "node-a"], ["near:8080"]) == {
        f"{one} near:8080" for one in ("web", "far", "node-a")
    }


def test_both_ends_have_to_agree(enforcer: Enforcer, lab: Lab) -> None:
    opening = policy("web", {"policyTypes": ["Ingress"], "ingress": [{"from": [{"namespaceSelector": {}}]}]})
    closing = policy("far", {"policyTypes": ["Egress"]})
    enforce(enforcer, lab, opening, closing)
    assert lab.reached(["near", "far"], ["web:8080"]) == {"near web:8080"}


def test_policies_are_about_the_pods_behind_a_cluster_ip(enforcer: Enforcer, lab: Lab) -> None:
    for node in lab.nodes:
        proxy = (
            f"table ip proxy {{ chain in {{ type nat hook prerouting priority dstnat; "
            f"ip daddr {CLUSTER_IP} tcp dport 80 dnat to {lab.addresses['web']}:8080; }}; }}"
        )
        run("nft", "-f", "-", namespace=node.namespace, stdin=proxy)
    service = f"{CLUSTER_IP}:80"
    both = {f"near {service}", f"far {service}"}
    assert lab.reached(["near", "far"], [service]) == both
    ports = [{"port": 8080}]
    web = policy("web", {"policyTypes": ["Ingress"], "ingress": [{"from": [named("near")], "ports": ports}]})
    enforce(enforcer, lab, web)
    assert lab.reached(["near", "far"], [service]) == {f"near {service}"}
    out = [policy(one, {"policyTypes": ["Egress"], "egress": [{"ports": ports}]}) for one in ("near", "far")]
    enforce(enforcer, lab, *out)
    assert lab.reached(["near", "far"], [service]) == both
    out = [policy(one, {"policyTypes": ["Egress"], "egress": [{"ports": [{"port": 80}]}]}) for one in ("near", "far")]
    enforce(enforcer, lab, *out)
    assert lab.reached(["near", "far"], [service]) == set()


def test_a_connection_outlives_the_policy_that_forbids_it(enforcer: Enforcer, lab: Lab) -> None:
    enforce(enforcer, lab)
    talkers = [lab.python(one, netlab.TALKER, lab.addresses["web"], "8080") for one in ("near", "far")]
    try:
        assert [_said(talker, "before\n") for talker in talkers] == ["before\n"] * 2
        enforce(enforcer, lab, policy("web", {"policyTypes": ["Ingress"]}))
        assert lab.reached(["near", "far"], ["web:8080"]) == set()
        assert [_said(talker, "after\n") for talker in talkers] == ["after\n"] * 2
    finally:
        for talker in talkers:
            talker.communicate(timeout=10)


def _said(talker: Any, line: str) -> str:
    talker.stdin.write(line)
    talker.stdin.flush()
    return str(talker.stdout.readline())


def test_rules_go_with_the_policies(enforcer: Enforcer, lab: Lab) -> None:
    enforce(enforcer, lab, policy("web", {"policyTypes": ["Ingress"]}))
    assert "drop" in run("nft", "list", "ruleset", namespace=lab.namespace("node-a"))
    enforce(enforcer, lab)
    assert "drop" not in run("nft", "list", "ruleset", namespace=lab.namespace("node-a"))


def test_rules_that_the_kernel_refuses_leave_the_old_ones(enforcer: Enforcer, lab: Lab) -> None:
    enforce(enforcer, lab, policy("web", {"policyTypes": ["Ingress"]}))
    before = run("nft", "list", "ruleset", namespace=lab.namespace("node-a"))
    with pytest.raises(ClusterError, match="nft -f -: "):
        enforcer.apply("node-a", f"table inet {TABLE}\ndelete table inet {TABLE}\nnonsense\n")
    assert run("nft", "list", "ruleset", namespace=lab.namespace("node-a")) == before
    assert lab.reached(["near"], WEB) == set()


def test_a_node_that_does_not_filter_between_its_pods_is_named(enforcer: Enforcer, lab: Lab) -> None:
    place = lab.namespace("node-a")
    run("sysctl", "-q", "-w", f"{BRIDGED}=0", namespace=place)
    try:
        with pytest.raises(ClusterError, match="bridge-nf-call-iptables is not 1; modprobe br_netfilter"):
            enforce(enforcer, lab, policy("web", {"policyTypes": ["Ingress"]}))
        assert lab.reached(["near", "far"], ["web:8080"]) == {"near web:8080"}
    finally:
        run("sysctl", "-q", "-w", f"{BRIDGED}=1", namespace=place)
    enforce(enforcer, lab, policy("web", {"policyTypes": ["Ingress"]}))
    assert lab.reached(["near", "far"], ["web:8080"]) == set()
