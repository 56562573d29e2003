"""The cluster's network: a switch on this machine, and a network namespace with one cable to it for each node."""

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
FAULTS = "cft_faults"


def run(*argv: str, namespace: str | None = None, stdin: str | None = None, check: bool = True) -> str:
    """Run a system program, in a network namespace if one is named; return its output.

    Raises:
        ClusterError: it failed.
    """
    inside = [find("nsenter"), f"--net=/run/netns/{namespace}", "--"] if namespace else []
    command = [*inside, find(argv[0]), *argv[1:]]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def links() -> set[str]:
    """Names of the machine's network interfaces."""
    found: list[dict[str, Any]] = json.loads(run("ip", "-json", "link"))
    return {link["ifname"] for link in found}


def create_switch(cluster: Plan) -> None:
    """Create the switch with the control plane's address."""
    run("ip", "link", "add", cluster.bridge, "type", "bridge")
    run("ip", "address", "add", f"{cluster.address}/24", "dev", cluster.bridge)
    run("ip", "link", "set", cluster.bridge, "up")


def create_node(cluster: Plan, node: NodePlan) -> None:
    """Create the node's namespace and plug it into the switch."""
    run("ip", "netns", "add", node.namespace)
    inside = node.namespace
    run("ip", "link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
    run("ip", "link", "set", node.link, "master", cluster.bridge, "up")
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
    run("ip", "link", "delete", node.link, check=False)


def remove_switch(cluster: Plan) -> None:
    """Delete the switch."""
    run("ip", "link", "delete", cluster.bridge, check=False)


def cut_node(node: NodePlan) -> None:
    """Pull the node's cable."""
    run("ip", "link", "set", node.link, "down")


def heal_node(node: NodePlan, others: Iterable[NodePlan]) -> None:
    """Plug it in again; the kernel has dropped the routes through it."""
    run("ip", "link", "set", node.link, "up")
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
    shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
    run("tc", "qdisc", "replace", "dev", node.link, *shape)
    run("tc", "qdisc", "replace", "dev", "eth0", *shape, namespace=node.namespace)


def delay(node: NodePlan, milliseconds: int) -> None:
    """Delay each packet that leaves or reaches the node.

    Raises:
        ClusterError: the kernel has no `netem` discipline. What comes nearest without it is `limit` with a low rate:
            a queue that is kept full delays by up to 50 ms.
    """
    for where in ({"namespace": None}, {"namespace": node.namespace}):
        device = node.link if where["namespace"] is None else "eth0"
        try:
            run("tc", "qdisc", "replace", "dev", device, "root", "netem", "delay", f"{milliseconds}ms", **where)
        except ClusterError as error:
            raise ClusterError(f"this kernel cannot delay packets ({error}); limit the rate instead") from error


def unlimit(node: NodePlan) -> None:
    """Undo `limit` and `delay`."""
    run("tc", "qdisc", "delete", "dev", node.link, "root", check=False)
    run("tc", "qdisc", "delete", "dev", "eth0", "root", namespace=node.namespace, check=False)
