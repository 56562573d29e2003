"""NetworkPolicy objects, and the pods that they are about, as kubectl shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localcluster.plan import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Object = Mapping[str, Any]

# How the API calls the peers of a direction.
PEERS = {"Egress": "to", "Ingress": "from"}
PROTOCOLS = ("TCP", "UDP")
FINISHED = ("Succeeded", "Failed")


class PolicyError(ClusterError):
    """A policy asks for what is not supported here; the text names it."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What policies need to know of a pod that has an address.

    Attributes:
        ports: numbers of its containers' ports by name and protocol.
        shared: whether it is on the network of its node.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    node: str
    address: str
    ports: Mapping[tuple[str, str], int]
    shared: bool

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class World:
    """The pods, and the labels of namespaces by their names."""

    pods: Sequence[Pod]
    labels: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """Peers, and ports that they may use; none of either means all of them."""

    peers: Sequence[Object]
    ports: Sequence[Object]


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, with its rules by direction; a direction without rules allows nothing, an absent one says nothing."""

    name: str
    namespace: str
    selector: Object
    rules: Mapping[str, Sequence[Rule]]

    def __str__(self) -> str:
        return f"NetworkPolicy {self.namespace}/{self.name}"

    def applies(self, pod: Pod) -> bool:
        """Tell whether it isolates a pod, in the directions that it has."""
        return self.namespace == pod.namespace and selects(self.selector, pod.labels)

    def peers(self, peer: Object, world: World) -> Iterator[Pod]:
        """Pods that a peer stands for; without a selector of namespaces, they are beside the policy."""
        for pod in world.pods:
            if "namespaceSelector" in peer:
                inside = selects(_map(peer, "namespaceSelector"), world.labels.get(pod.namespace, {}))
            else:
                inside = pod.namespace == self.namespace
            if inside and "ipBlock" not in peer and selects(_map(peer, "podSelector"), pod.labels):
                yield pod


def read_world(pods: Iterable[Object], namespaces: Iterable[Object]) -> World:
    """Read pods and namespaces; without pods that have no address, or have finished and left it to another."""
    labels = {one["metadata"]["name"]: _map(one["metadata"], "labels") for one in namespaces}
    return World([_pod(one) for one in pods if _has_address(one)], labels)


def read_policy(policy: Object, world: World) -> Policy:
    """Read a policy.

    Raises:
        PolicyError: it is not supported.
    """
    metadata, spec = policy["metadata"], policy["spec"]
    directions = _list(spec, "policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    rules = {
        direction: [
            Rule(_list(rule, PEERS[direction]), _list(rule, "ports")) for rule in _list(spec, direction.lower())
        ]
        for direction in directions
    }
    read = Policy(metadata["name"], metadata["namespace"], _map(spec, "podSelector"), rules)
    _check(read, world)
    return read


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector selects what has these labels."""
    pairs = _map(selector, "matchLabels").items()
    return all(labels.get(key) == value for key, value in pairs) and all(
        _holds(expression, labels) for expression in _list(selector, "matchExpressions")
    )


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), _list(expression, "values")
    operators = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return operators[expression["operator"]]


def _has_address(pod: Object) -> bool:
    status = _map(pod, "status")
    return bool(pod["spec"].get("nodeName") and status.get("podIP")) and status.get("phase") not in FINISHED


def _pod(pod: Object) -> Pod:
    metadata, spec = pod["metadata"], pod["spec"]
    sidecars = [one for one in _list(spec, "initContainers") if one.get("restartPolicy") == "Always"]
    ports = [port for one in [*spec["containers"], *sidecars] for port in _list(one, "ports") if port.get("name")]
    return Pod(
        name=metadata["name"],
        namespace=metadata["namespace"],
        labels=_map(metadata, "labels"),
        node=spec["nodeName"],
        address=pod["status"]["podIP"],
        ports={(port["name"], port.get("protocol", "TCP")): port["containerPort"] for port in ports},
        shared=bool(spec.get("hostNetwork")),
    )


def _check(policy: Policy, world: World) -> None:
    rules = [rule for found in policy.rules.values() for rule in found]
    for port in [port for rule in rules for port in rule.ports]:
        if port.get("protocol", "TCP") not in PROTOCOLS:
            raise PolicyError(f"{policy}: protocol {port['protocol']} is not supported here; use TCP or UDP")
    named = [pod for rule in rules for peer in rule.peers for pod in policy.peers(peer, world)]
    for pod in [*filter(policy.applies, world.pods), *named]:
        if pod.shared:
            cure = "select pods without hostNetwork"
            raise PolicyError(f"{policy}: pod {pod} is on its node's network, and cannot be told from the node; {cure}")


def _list(of: Object, key: str) -> list[Any]:
    return of.get(key) or []


def _map(of: Object, key: str) -> dict[str, Any]:
    return of.get(key) or {}
