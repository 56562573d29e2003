"""Throw-away network namespaces that stand for two nodes and their pods, with servers in the pods."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from localcluster.network import NODE_SETTINGS, run
from localcluster.plan import NodePlan, Plan, claimed
from localcluster.process import MARK, end_marked
from localcluster.tools import find

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAMES = ("node-a", "node-b", "web", "near", "far")
TCP, UDP = (8080, 9090), 5353
SERVER = f"""
import socketserver, threading
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
class Answer(socketserver.DatagramRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read())
socketserver.TCPServer.allow_reuse_address = True
servers = [socketserver.ThreadingTCPServer(("", port), Echo) for port in {TCP}]
servers.append(socketserver.UDPServer(("", {UDP}), Answer))
for server in servers:
    threading.Thread(target=server.serve_forever).start()
print("up", flush=True)
"""
# A first packet that is lost is sent again after a second.
CLIENT = """
import concurrent.futures, json, socket, sys
def reaches(target):
    host, port, kind = target
    with socket.socket(socket.AF_INET, kind) as client:
        client.settimeout(1.2)
        try:
            client.connect((host, port))
            client.sendall(b"x\\n")
            return client.recv(2) == b"x\\n"
        except OSError:
            return False
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    print(json.dumps(list(pool.map(reaches, json.loads(sys.argv[1])))))
"""
TALKER = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) as client:
    for line in sys.stdin.buffer:
        client.sendall(line)
        sys.stdout.buffer.write(client.recv(len(line)))
        sys.stdout.buffer.flush()
"""


@dataclass(frozen=True, slots=True)
class Lab:
    """Two nodes, `node-a` with the pods `web` and `near`, and `node-b` with `far`."""

    cluster: Plan
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[NodePlan, NodePlan]:
        """The nodes."""
        return self.cluster.node("node-a", 0), self.cluster.node("node-b", 1)

    def namespace(self, name: str) -> str:
        """Network namespace of a pod or node."""
        return self.cluster.node(name, 0).namespace

    def python(self, where: str, program: str, *argv: str) -> subprocess.Popen[str]:
        """Start a Python program in the network of a pod or node."""
        enter = (find("nsenter"), f"--net=/run/netns/{self.namespace(where)}", "--")
        command = (*enter, sys.executable, "-S", "-c", program, *argv)
        environment = {**os.environ, MARK: str(self.cluster.folder)}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def reached(self, sources: Iterable[str], targets: Iterable[str]) -> set[str]:
        """Try connections; return those that work, such as `near web:8080`, of targets such as `web:8080`."""
        wanted = list(targets)
        asked = json.dumps([self._socket(target) for target in wanted])
        clients = {source: self.python(source, CLIENT, asked) for source in sources}
        found: set[str] = set()
        for source, client in clients.items():
            answers = json.loads(client.communicate(timeout=30)[0])
            found |= {f"{source} {target}" for target, works in zip(wanted, answers, strict=True) if works}
        return found

    def _socket(self, target: str) -> tuple[str, int, int]:
        host, _, port = target.partition(":")
        return self.addresses.get(host, host), int(port), 2 if int(port) == UDP else 1


@contextlib.contextmanager
def nodes() -> Iterator[Lab]:
    """Make the nodes of a lab; nothing of it remains."""
    if os.geteuid() != 0:
        pytest.fail("network namespaces are made by root; run this as root")
    with claimed("lab") as name, contextlib.ExitStack() as stack:
        made = Lab(Plan(name, 64))
        _clear(made)
        for node in made.nodes:
            _namespace(made, node.name, stack)
        first, second = made.nodes
        cable = ("type", "veth", "peer", "name", "eth0", "netns", second.namespace)
        run("ip", "link", "add", "eth0", *cable, namespace=first.namespace)
        for node, other in ((first, second), (second, first)):
            _node(node, other)
            made.addresses[node.name] = node.address
        yield made


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    """Make a lab with pods that serve."""
    with nodes() as made, contextlib.ExitStack() as stack:
        for name, node in (("web", made.nodes[0]), ("near", made.nodes[0]), ("far", made.nodes[1])):
            _namespace(made, name, stack)
            made.addresses[name] = _pod(made, name, node)
            _serve(made, name, stack)
        yield made


def _clear(made: Lab) -> None:
    """Remove what a run left that was killed."""
    end_marked(made.cluster.folder)
    for name in NAMES:
        run("ip", "netns", "delete", made.namespace(name), check=False)


def _namespace(made: Lab, name: str, stack: contextlib.ExitStack) -> None:
    namespace = made.namespace(name)
    run("ip", "netns", "add", namespace)
    stack.callback(run, "ip", "netns", "delete", namespace)
    run("ip", "link", "set", "lo", "up", namespace=namespace)


def _node(node: NodePlan, other: NodePlan) -> None:
    inside = node.namespace
    run("ip", "link", "add", "cni0", "type", "bridge", namespace=inside)
    for link, address in (("eth0", node.address), ("cni0", node.gateway)):
        run("ip", "address", "add", f"{address}/24", "dev", link, namespace=inside)
        run("ip", "link", "set", link, "up", namespace=inside)
    for setting in NODE_SETTINGS:
        run("sysctl", "-q", "-w", setting, namespace=inside)
    run("ip", "route", "add", other.pods, "via", other.address, namespace=inside)


def _pod(made: Lab, name: str, node: NodePlan) -> str:
    """Plug a pod into its node, as the CNI plugin does."""
    address = node.pods.replace(".0/24", f".{10 + len(made.addresses)}")
    inside = made.namespace(name)
    cable = ("type", "veth", "peer", "name", "eth0", "netns", inside)
    run("ip", "link", "add", name, *cable, namespace=node.namespace)
    run("ip", "link", "set", name, "master", "cni0", "up", namespace=node.namespace)
    run("ip", "link", "set", name, "type", "bridge_slave", "hairpin", "on", namespace=node.namespace)
    run("ip", "address", "add", f"{address}/24", "dev", "eth0", namespace=inside)
    run("ip", "link", "set", "eth0", "up", namespace=inside)
    run("ip", "route", "add", "default", "via", node.gateway, namespace=inside)
    return address


def _serve(made: Lab, name: str, stack: contextlib.ExitStack) -> None:
    server = made.python(name, SERVER)
    stack.callback(server.communicate)
    stack.callback(server.kill)
    assert server.stdout is not None
    assert server.stdout.readline() == "up\n"
