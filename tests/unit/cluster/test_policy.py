"""What policies become, by tables: which pods they isolate, and what they let through to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from localcluster.policy_objects import PolicyError
from localcluster.policy_rules import TABLE, rules

Object = dict[str, Any]

REMOVAL = f"table inet {TABLE}\ndelete table inet {TABLE}\n"
HTTP: Object = {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]}
ALT: Object = {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 9090}]}]}
NAMESPACES: list[Object] = [
    {"metadata": {"name": "jobs", "labels": {"team": "a"}}},
    {"metadata": {"name": "other", "labels": {"team": "b"}}},
    {"metadata": {"name": "bare"}},
]


def pod(name: str, address: str, *, namespace: str = "jobs", node: str = "node-a", **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"name": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c"}], **spec},
        "status": {"phase": "Running", "podIP": address},
    }


PODS = [
    pod("rank-0", "10.0.0.1", **HTTP),
    pod("rank-1", "10.0.0.2", node="node-b", **ALT),
    pod("near", "10.0.0.3"),
    pod("far", "10.0.0.4", namespace="other", **HTTP),
    pod("lost", "10.0.0.5", namespace="bare"),
]


def policy(spec: Object, *, name: str = "p", chosen: str | None = "rank-0") -> Object:
    selector = {} if chosen is None else {"matchLabels": {"name": chosen}}
    return {"metadata": {"name": name, "namespace": "jobs"}, "spec": {"podSelector": selector, **spec}}


@dataclass(frozen=True, slots=True)
class Parsed:
    """Chains of a node by name, without what all have, and the jumps to them by side."""

    chains: dict[str, list[str]]
    jumps: dict[str, str]


def parse(text: str) -> Parsed:
    assert text.startswith(REMOVAL)
    bodies = {
        name: [line.strip() for line in body.strip().splitlines()]
        for name, body in re.findall(r"chain (\S+) \{\n(.*?)\n +\}", text, re.DOTALL)
    }
    forward = bodies.pop("forward", [])
    jumps = {
        f"{line.split()[1]} {key}": chain
        for line in forward
        for key, chain in re.findall(r"([\d.]+) : jump ([^ ,]+)", line)
    }
    for name, body in bodies.items():
        side = "saddr" if name.startswith("ingress") else "daddr"
        assert body[1] == f"ip {side} {name.partition('-')[2]} return"
        assert body[-1] == "drop"
    matches = {name: [line.removesuffix("return").strip() for line in body[2:-1]] for name, body in bodies.items()}
    return Parsed(matches, jumps)


def allowed(spec: Object, chain: str = "ingress-10.0.0.1") -> list[str]:
    """What a policy for rank-0 lets through."""
    return parse(rules([policy(spec)], PODS, NAMESPACES)["node-a"]).chains[chain]


def ingress(*peers: Object, **rule: Any) -> Object:
    return {"policyTypes": ["Ingress"], "ingress": [{"from": list(peers), **rule}]}


def egress(*peers: Object, **rule: Any) -> Object:
    return {"policyTypes": ["Egress"], "egress": [{"to": list(peers), **rule}]}


def named(name: str) -> Object:
    return {"podSelector": {"matchLabels": {"name": name}}}


def test_without_policies_every_node_with_pods_knows_connections_and_stops_nothing() -> None:
    text = (
        f"{REMOVAL}table inet {TABLE} {{\n"
        "  chain forward {\n"
        "    type filter hook forward priority filter; policy accept;\n"
        "    ct state established,related accept\n"
        "  }\n"
        "}\n"
    )
    assert rules([], PODS, NAMESPACES) == {"node-a": text, "node-b": text}


def test_the_whole_text_of_a_node() -> None:
    spec = {**ingress(named("near"), ports=[{"port": 80}]), "policyTypes": ["Ingress", "Egress"]}
    assert rules([policy(spec)], PODS, NAMESPACES)["node-a"] == (
        f"{REMOVAL}table inet {TABLE} {{\n"
        "  chain forward {\n"
        "    type filter hook forward priority filter; policy accept;\n"
        "    ct state established,related accept\n"
        "    ip saddr vmap { 10.0.0.1 : jump egress-10.0.0.1 }\n"
        "    ip daddr vmap { 10.0.0.1 : jump ingress-10.0.0.1 }\n"
        "  }\n"
        "  chain egress-10.0.0.1 {\n"
        "    # jobs/rank-0\n"
        "    ip daddr 10.0.0.1 return\n"
        "    drop\n"
        "  }\n"
        "  chain ingress-10.0.0.1 {\n"
        "    # jobs/rank-0\n"
        "    ip saddr 10.0.0.1 return\n"
        "    ip saddr { 10.0.0.3 } tcp dport 80 return\n"
        "    drop\n"
        "  }\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("spec", "isolated"),
    [
        pytest.param({"policyTypes": ["Ingress"]}, ["daddr"], id="ingress alone"),
        pytest.param({"policyTypes": ["Egress"]}, ["saddr"], id="egress alone"),
        pytest.param({"policyTypes": ["Ingress", "Egress"]}, ["daddr", "saddr"], id="both"),
        pytest.param({}, ["daddr"], id="ingress where no type is given"),
        pytest.param({"egress": [{}]}, ["daddr", "saddr"], id="both where no type but a rule of egress is given"),
        pytest.param({"policyTypes": ["Ingress"], "egress": [{}]}, ["daddr"], id="ingress in spite of a rule"),
    ],
)
def test_a_pod_is_isolated_in_the_directions_of_its_policies(spec: Object, isolated: list[str]) -> None:
    found = parse(rules([policy(spec)], PODS, NAMESPACES)["node-a"])
    assert sorted(found.jumps) == [f"{side} 10.0.0.1" for side in isolated]
    assert sorted(found.jumps.values()) == sorted(found.chains)


def test_a_policy_isolates_the_pods_of_its_own_namespace_each_on_its_own_node() -> None:
    found = rules([policy({"policyTypes": ["Ingress"]}, chosen=None)], PODS, NAMESPACES)
    assert list(parse(found["node-a"]).chains) == ["ingress-10.0.0.1", "ingress-10.0.0.3"]
    assert list(parse(found["node-b"]).chains) == ["ingress-10.0.0.2"]


@pytest.mark.parametrize(
    ("peers", "match"),
    [
        pytest.param([named("near")], ["ip saddr { 10.0.0.3 }"], id="a pod of its namespace"),
        pytest.param([named("far")], [], id="no pod of another namespace"),
        pytest.param([{"podSelector": {}}], ["ip saddr { 10.0.0.1, 10.0.0.2/31 }"], id="all pods of its namespace"),
        pytest.param(
            [{"namespaceSelector": {"matchLabels": {"team": "b"}}}], ["ip saddr { 10.0.0.4 }"], id="a whole namespace"
        ),
        pytest.param(
            [{"namespaceSelector": {}}], ["ip saddr { 10.0.0.1, 10.0.0.2/31, 10.0.0.4/31 }"], id="every namespace"
        ),
        pytest.param(
            [{"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}],
            ["ip saddr { 10.0.0.5 }"],
            id="a namespace without labels",
        ),
        pytest.param(
            [{"namespaceSelector": {}, **named("far")}], ["ip saddr { 10.0.0.4 }"], id="certain pods anywhere"
        ),
        pytest.param([named("near"), named("rank-1")], ["ip saddr { 10.0.0.2/31 }"], id="several peers"),
        pytest.param([named("nobody")], [], id="nobody, where none is selected"),
        pytest.param([], [""], id="all, where no peer is given"),
        pytest.param([{"ipBlock": {"cidr": "192.168.0.0/16"}}], ["ip saddr { 192.168.0.0/16 }"], id="a block"),
        pytest.param(
            [{"ipBlock": {"cidr": "192.168.0.0/30", "except": ["192.168.0.0/32"]}}],
            ["ip saddr { 192.168.0.1, 192.168.0.2/31 }"],
            id="a block with an exception",
        ),
        pytest.param(
            [{"ipBlock": {"cidr": "192.168.0.0/29", "except": ["192.168.0.0/30", "192.168.0.2/32", "192.168.0.4/32"]}}],
            ["ip saddr { 192.168.0.5, 192.168.0.6/31 }"],
            id="a block with exceptions within each other",
        ),
        pytest.param([{"ipBlock": {"cidr": "192.168.0.0/30", "except": ["192.168.0.0/30"]}}], [], id="an empty block"),
        pytest.param([{"ipBlock": {"cidr": "0.0.0.0/0"}}], [""], id="the block of all"),
        pytest.param([{"ipBlock": {"cidr": "::/0"}}], [], id="no block of IPv6"),
        pytest.param(
            [named("near"), {"ipBlock": {"cidr": "10.0.0.0/24"}}], ["ip saddr { 10.0.0.0/24 }"], id="overlapping peers"
        ),
    ],
)
def test_peers_are_addresses(peers: list[Object], match: list[str]) -> None:
    assert allowed(ingress(*peers)) == match
    assert allowed(egress(*peers), "egress-10.0.0.1") == [one.replace("saddr", "daddr") for one in match]


@pytest.mark.parametrize(
    ("ports", "match"),
    [
        pytest.param([{"port": 80}], ["tcp dport 80"], id="TCP where no protocol is given"),
        pytest.param([{"port": 53, "protocol": "UDP"}], ["udp dport 53"], id="UDP"),
        pytest.param([{"port": 80, "endPort": 90}], ["tcp dport 80-90"], id="a range"),
        pytest.param([{"protocol": "UDP"}], ["meta l4proto udp"], id="all ports of a protocol"),
        pytest.param([{"port": 1}, {"port": 2}], ["tcp dport 1", "tcp dport 2"], id="several"),
        pytest.param([{"port": 1}, {"port": 1}], ["tcp dport 1"], id="a repeated one once"),
        pytest.param([], [""], id="all where none is given"),
        pytest.param(None, [""], id="all where there is null"),
    ],
)
@pytest.mark.parametrize("peers", [[], [{"ipBlock": {"cidr": "10.1.0.0/16"}}]], ids=["from all", "from some"])
def test_ports_narrow_peers(peers: list[Object], ports: list[Object], match: list[str]) -> None:
    address = "ip saddr { 10.1.0.0/16 } " if peers else ""
    assert allowed(ingress(*peers, ports=ports)) == [f"{address}{one}".strip() for one in match]


@pytest.mark.parametrize(
    ("spec", "chain", "match"),
    [
        pytest.param(
            ingress(ports=[{"port": "http"}]), "ingress-10.0.0.1", ["tcp dport 8080"], id="the isolated pod's own"
        ),
        pytest.param(
            ingress(named("near"), ports=[{"port": "http"}]),
            "ingress-10.0.0.1",
            ["ip saddr { 10.0.0.3 } tcp dport 8080"],
            id="its own for certain peers",
        ),
        pytest.param(ingress(ports=[{"port": "grpc"}]), "ingress-10.0.0.1", [], id="none of that name"),
        pytest.param(
            ingress(ports=[{"port": "http", "protocol": "UDP"}]), "ingress-10.0.0.1", [], id="none of that protocol"
        ),
        pytest.param(
            egress(named("rank-1"), named("near"), ports=[{"port": "http"}]),
            "egress-10.0.0.1",
            ["ip daddr { 10.0.0.2 } tcp dport 9090"],
            id="the peer's for egress",
        ),
        pytest.param(
            egress(ports=[{"port": "http"}]),
            "egress-10.0.0.1",
            [
                "ip daddr { 10.0.0.1 } tcp dport 8080",
                "ip daddr { 10.0.0.2 } tcp dport 9090",
                "ip daddr { 10.0.0.4 } tcp dport 8080",
            ],
            id="every pod's for egress to all",
        ),
        pytest.param(
            egress({"ipBlock": {"cidr": "10.0.0.4/30"}}, ports=[{"port": "http"}]),
            "egress-10.0.0.1",
            ["ip daddr { 10.0.0.4 } tcp dport 8080"],
            id="those of pods in a block",
        ),
    ],
)
def test_a_ports_name_is_looked_up_at_the_destination(spec: Object, chain: str, match: list[str]) -> None:
    assert allowed(spec, chain) == match


@pytest.mark.parametrize(
    ("second", "match"),
    [
        pytest.param(ingress(named("rank-1")), ["ip saddr { 10.0.0.3 }", "ip saddr { 10.0.0.2 }"], id="another peer"),
        pytest.param({"policyTypes": ["Ingress"]}, ["ip saddr { 10.0.0.3 }"], id="nothing"),
        pytest.param({"ingress": [{}]}, ["ip saddr { 10.0.0.3 }", ""], id="everything"),
        pytest.param({"policyTypes": ["Egress"]}, ["ip saddr { 10.0.0.3 }"], id="the other direction"),
    ],
)
def test_policies_add_up(second: Object, match: list[str]) -> None:
    both = [policy(ingress(named("near"))), policy(second, name="q", chosen=None)]
    assert parse(rules(both, PODS, NAMESPACES)["node-a"]).chains["ingress-10.0.0.1"] == match


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param(
            ingress(ports=[{"port": 80, "protocol": "SCTP"}]),
            "NetworkPolicy jobs/p: protocol SCTP is not supported here; use TCP or UDP",
            id="SCTP",
        ),
        pytest.param(ingress(named("host")), "NetworkPolicy jobs/p: pod jobs/host is on its node's", id="as a peer"),
        pytest.param({"podSelector": {}}, "NetworkPolicy jobs/p: pod jobs/host is on its node's", id="isolated"),
    ],
)
def test_what_is_not_supported_is_refused(spec: Object, text: str) -> None:
    host = pod("host", "192.168.0.1", hostNetwork=True)
    with pytest.raises(PolicyError, match=re.escape(text)):
        rules([policy(spec)], [*PODS, host], NAMESPACES)


def test_pods_on_their_nodes_network_disturb_no_policy_that_leaves_them_alone() -> None:
    host = pod("host", "192.168.0.1", hostNetwork=True)
    found = rules([policy(ingress(named("near")))], [*PODS, host], NAMESPACES)
    assert found == rules([policy(ingress(named("near")))], PODS, NAMESPACES)
