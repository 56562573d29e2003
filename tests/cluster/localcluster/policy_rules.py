"""NetworkPolicy objects as nftables rules, which hold in the network namespaces of the nodes.

Ingress is decided on the node of the destination, egress on the node of the source, each for forwarded packets and
after cluster IPs have become addresses of pods; bridged packets count as forwarded while bridge-nf-call-iptables is 1.
What a node itself sends is not forwarded, and so never filtered; the control plane is like anything outside, and needs
an `ipBlock` to reach an isolated pod or be reached by one. Packets that are not allowed are dropped in silence.

Not supported, and refused with `PolicyError`: SCTP, and pods on their node's network, be they what a policy applies to
or what it allows. Policies hold for IPv4, the only addresses that this cluster gives to pods. A port's name stands for
the ports of that name of the destination's containers, so it allows nothing outside of the cluster.
"""

from __future__ import annotations

from ipaddress import IPv4Network, collapse_addresses, ip_network
from typing import TYPE_CHECKING, Any

from localcluster.policy_objects import read_policy, read_world

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from localcluster.policy_objects import Object, Pod, Policy, Rule, World

TABLE = "cft_policy"
HOOK = "type filter hook forward priority filter; policy accept;"
EVERYWHERE = [IPv4Network("0.0.0.0/0")]
# Where packets of a direction have the addresses of the isolated pod and of its peer.
OWN = {"Egress": "saddr", "Ingress": "daddr"}
PEER = {"Egress": "daddr", "Ingress": "saddr"}


def rules(policies: Iterable[Object], pods: Sequence[Object], namespaces: Iterable[Object]) -> dict[str, str]:
    """Return, for each node that has pods, what makes `nft -f -` enforce the policies there.

    Raises:
        PolicyError: a policy is not supported.
    """
    world = read_world(pods, namespaces)
    read = [read_policy(policy, world) for policy in policies]
    nodes = dict.fromkeys(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))
    return {node: _table(node, read, world) for node in nodes}


def _table(node: str, policies: Sequence[Policy], world: World) -> str:
    """Replace the table in one transaction."""
    maps, chains = [], []
    for direction, side in OWN.items():
        jumps: dict[str, str] = {}
        for pod in world.pods:
            isolating = [policy for policy in policies if policy.applies(pod) and direction in policy.rules]
            if pod.node == node and isolating:
                name = f"{direction.lower()}-{pod.address}"
                jumps[pod.address] = f"{pod.address} : jump {name}"
                chains.append(_block(f"chain {name}", _chain(pod, direction, isolating, world)))
        if jumps:
            maps.append(f"ip {side} vmap {{ {', '.join(jumps.values())} }}")
    # Where no pod is isolated too, so that the kernel knows a connection when its pod becomes so.
    forward = _block("chain forward", [HOOK, "ct state established,related accept", *maps])
    return f"table inet {TABLE}\ndelete table inet {TABLE}\n" + _block(f"table inet {TABLE}", [forward, *chains])


def _chain(pod: Pod, direction: str, policies: Iterable[Policy], world: World) -> list[str]:
    # A pod always reaches itself, through a cluster IP too.
    allowed = [f"ip {PEER[direction]} {pod.address}"]
    for policy in policies:
        for rule in policy.rules[direction]:
            networks = _networks(rule, policy, world)
            if networks:
                allowed += _matches(rule, direction, networks, [pod] if direction == "Ingress" else world.pods)
    # Policies add up, often to the same; an expression that is empty matches all.
    return [f"# {pod}", *(f"{match} return".lstrip() for match in dict.fromkeys(allowed)), "drop"]


def _networks(rule: Rule, policy: Policy, world: World) -> list[IPv4Network]:
    """Addresses of a rule's peers; overlapping ones are united, as nft refuses them in one set."""
    found = [] if rule.peers else EVERYWHERE
    for peer in rule.peers:
        block = _block_of(peer["ipBlock"]) if "ipBlock" in peer else []
        found = [*found, *block, *(IPv4Network(pod.address) for pod in policy.peers(peer, world))]
    return list(collapse_addresses(found))


def _block_of(block: dict[str, Any]) -> list[IPv4Network]:
    """Addresses of an `ipBlock`; those of IPv6 are nobody's here."""
    network = ip_network(block["cidr"], strict=False)
    rest = [network] if isinstance(network, IPv4Network) else []
    for text in block.get("except") or []:
        gap = ip_network(text, strict=False)
        rest = [piece for part in rest if isinstance(gap, IPv4Network) for piece in _without(part, gap)]
    return rest


def _without(part: IPv4Network, gap: IPv4Network) -> list[IPv4Network]:
    if part.subnet_of(gap):
        return []
    return list(part.address_exclude(gap)) if gap.subnet_of(part) else [part]


def _matches(rule: Rule, direction: str, networks: list[IPv4Network], destinations: Sequence[Pod]) -> Iterator[str]:
    """Expressions for what a rule lets pass."""
    peers = _addresses(direction, networks)
    if not rule.ports:
        yield peers
    for port in rule.ports:
        protocol, wanted = port.get("protocol", "TCP"), port.get("port")
        if wanted is None:
            yield f"{peers}meta l4proto {protocol.lower()}"
        elif isinstance(wanted, int):
            span = f"{wanted}-{port['endPort']}" if port.get("endPort") else f"{wanted}"
            yield f"{peers}{protocol.lower()} dport {span}"
        else:
            for pod in destinations:
                number = pod.ports.get((wanted, protocol))
                reached = networks if direction == "Ingress" else _part(networks, pod)
                if number and reached:
                    yield f"{_addresses(direction, reached)}{protocol.lower()} dport {number}"


def _part(networks: Iterable[IPv4Network], pod: Pod) -> list[IPv4Network]:
    own = IPv4Network(pod.address)
    return [own] if any(own.subnet_of(network) for network in networks) else []


def _addresses(direction: str, networks: list[IPv4Network]) -> str:
    if networks == EVERYWHERE:
        return ""
    return f"ip {PEER[direction]} {{ {', '.join(str(network).removesuffix('/32') for network in networks)} }} "


def _block(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(line.rstrip() for line in lines).replace("\n", "\n  ")
    return f"{title} {{\n  {body}\n}}\n"
