"""The cluster's network: a switch, and a network namespace with one cable to it for each node and for this machine.

The switch has a namespace of its own: on the machine's, a firewall that forwards nothing, such as Docker's, would also
see, and drop, what goes from node to node.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from localcluster.plan import ClusterError
from localcluster.tools import find

if TYPE_CHECKING:
    from collections.abc import Iterable

    from localcluster.plan import NodePlan, Plan

# Forwarding makes a router of a node; the second makes bridged packets pass the filters, so that the answer of a pod
# behind a cluster IP finds its way back to a pod on the same node, and so that policies hold between the two.
NODE_SETTINGS = ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")
SWITCH = "switch"
FAULTS = "cft_faults"
SECONDS = 60.0


def run(
    *argv: str, namespace: str | None = None, stdin: str | None = None, check: bool = True, seconds: float = SECONDS
) -> str:
    """Run a system program, in a network namespace if one is named; return its output.

    Raises:
        ClusterError: it failed, or hangs.
    """
    inside = [find("nsenter"), f"--net=/run/netns/{namespace}", "--"] if namespace else []
    command = [*inside, find(argv[0]), *argv[1:]]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{' '.join(argv)}: does not end in {seconds:.0f} s") from error
    if check and done.returncode:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def links() -> set[str]:
    """Names of the machine's network interfaces."""
    found: list[dict[str, Any]] = json.loads(run("ip", "-json", "link"))
    return {link["ifname"] for link in found}


def create_switch(cluster: Plan) -> None:
    """Create the switch, and the machine's cable to it with the control plane's address."""
    run("ip", "netns", "add", cluster.switch)
    inside = cluster.switch
    run("ip", "link", "add", SWITCH, "type", "bridge", namespace=inside)
    run("ip", "link", "set", SWITCH, "up", namespace=inside)
    run("ip", "link", "add", cluster.link, "type", "veth", "peer", "name", "machine", "netns", cluster.switch)
    run("ip", "link", "set", "machine", "master", SWITCH, "up", namespace=inside)
    run("ip", "address", "add", f"{cluster.address}/24", "dev", cluster.link)
    run("ip", "link", "set", cluster.link, "up")


def create_node(node: NodePlan) -> None:
    """Create the node's namespace and plug it into the switch."""
    run("ip", "netns", "add", node.namespace)
    inside = node.namespace
    cable = ("type", "veth", "peer", "name", "eth0", "netns", node.namespace)
    run("ip", "link", "add", node.link, *cable, namespace=node.switch)
    run("ip", "link", "set", node.link, "master", SWITCH, "up", namespace=node.switch)
    run("ip", "link", "set", "lo", "up", namespace=inside)
    run("ip", "address", "add", f"{node.address}/24", "dev", "eth0", namespace=inside)
    run("ip", "link", "set", "eth0", "up", namespace=inside)
    for setting in NODE_SETTINGS:
        # The bridge filter may be a module that nothing has loaded; then bridged packets are not filtered.
        run("sysctl", "-q", "-w", setting, check=not setting.startswith("net.bridge"), namespace=inside)
    run("ip", "route", "replace", node.pods, "via", node.address)


def route(nodes: Iterable[NodePlan]) -> None:
    """Tell each node the way to the others' pods."""
    known = list(nodes)
    for node in known:
        for other in known:
            if other != node:
                run("ip", "route", "replace", other.pods, "via", other.address, namespace=node.namespace)


def remove_node(node: NodePlan) -> None:
    """Delete the node's namespace; cable and routes go with it."""
    run("ip", "netns", "delete", node.namespace, check=False)
    run("ip", "link", "delete", node.link, namespace=node.switch, check=False)


def remove_switch(cluster: Plan) -> None:
    """Delete the switch, and what is left on its cables."""
    run("ip", "link", "delete", cluster.link, check=False)
    run("ip", "netns", "delete", cluster.switch, check=False)


def cut_node(node: NodePlan) -> None:
    """Pull the node's cable."""
    run("ip", "link", "set", node.link, "down", namespace=node.switch)


def heal_node(node: NodePlan, others: Iterable[NodePlan]) -> None:
    """Plug it in again, with its routes."""
    run("ip", "link", "set", node.link, "up", namespace=node.switch)
    run("ip", "route", "replace", node.pods, "via", node.address)
    route([node, *(other for other in others if other != node)])


def cut_pod(node: NodePlan, address: str) -> None:
    """Drop all packets to and from the pod with this address, without a word to either side."""
    table = f"table inet {FAULTS} {{\n chain cut {{ type filter hook forward priority -50; }}\n}}\n"
    rules = "".join(f"add rule inet {FAULTS} cut ip {side} {address} drop\n" for side in ("saddr", "daddr"))
    run("nft", "-f", "-", namespace=node.namespace, stdin=table + rules)


def heal_pods(node: NodePlan) -> None:
    """Undo every `cut_pod` of the node."""
    run("nft", "delete", "table", "inet", FAULTS, namespace=node.namespace, check=False)


def limit(node: NodePlan, rate: str) -> None:
    """Limit the node's cable to a rate such as `1gbit`, in both directions.

    The queue holds 50 ms: a loaded link delays, as a real one does.
    """
    for device, namespace in ends(node):
        shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        run("tc", "qdisc", "replace", "dev", device, *shape, namespace=namespace)


def delay(node: NodePlan, milliseconds: int) -> None:
    """Delay each packet that leaves or reaches the node.

    Raises:
        ClusterError: the kernel has no `netem` discipline. What comes nearest without it is `limit` with a low rate:
            a queue that is kept full delays by up to 50 ms.
    """
    for device, namespace in ends(node):
        shape = ("root", "netem", "delay", f"{milliseconds}ms")
        try:
            run("tc", "qdisc", "replace", "dev", device, *shape, namespace=namespace)
        except ClusterError as error:
            raise ClusterError(f"this kernel cannot delay packets ({error}); limit the rate instead") from error


def unlimit(node: NodePlan) -> None:
    """Undo `limit` and `delay`."""
    for device, namespace in ends(node):
        run("tc", "qdisc", "delete", "dev", device, "root", namespace=namespace, check=False)


def ends(node: NodePlan) -> tuple[tuple[str, str], tuple[str, str]]:
    """Both ends of the node's cable, each with its namespace."""
    return (node.link, node.switch), ("eth0", node.namespace)
