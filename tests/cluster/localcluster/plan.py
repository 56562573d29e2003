"""Where the parts of a cluster live: names, addresses, folders and processors, all derived from the cluster's name."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster.addresses import FIRST_NET, NETS, routed

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
NODE = re.compile(r"node-[a-z]|system")
ROUTES = Path("/proc/net/route")
FIRST_HOST = 11
LABEL = "app.kubernetes.io/managed-by"
# A cluster with this file in its folder stays when the process that brought it up ends; tests leave it alone.
KEPT = "kept"
# Short, because a Unix socket's path has at most 107 bytes.
HOME = Path("/var/tmp/cft")  # noqa: S108 - made with mode 0700, and refused if it belongs to somebody else


class ClusterError(Exception):
    """The cluster cannot do what it was asked; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: a network namespace with a container runtime and a kubelet of its own.

    Attributes:
        index: place of the node in the cluster, from 0; decides its addresses.
        exclusive: processors that Guaranteed pods get for themselves; empty for a node without pinning.
        tainted: keep away pods that do not tolerate control-plane nodes.
    """

    name: str
    cluster: str
    net: int
    index: int
    exclusive: tuple[int, ...] = ()
    tainted: bool = False

    @property
    def address(self) -> str:
        """IPv4 address of the node."""
        return f"10.{self.net}.0.{FIRST_HOST + self.index}"

    @property
    def pods(self) -> str:
        """Network of the node's pods."""
        return f"10.{self.net}.{FIRST_HOST + self.index}.0/24"

    @property
    def gateway(self) -> str:
        """Address of the node's pod bridge."""
        return f"10.{self.net}.{FIRST_HOST + self.index}.1"

    @property
    def namespace(self) -> str:
        """Network namespace of the node."""
        return f"cft-{self.cluster}-{self.name}"

    @property
    def switch(self) -> str:
        """Network namespace of the cluster's switch."""
        return Plan(self.cluster, self.net).switch

    @property
    def link(self) -> str:
        """The switch's end of the node's cable; the kernel allows 15 characters."""
        return f"cft{self.net}n{self.index}"

    @property
    def cgroup(self) -> str:
        """Control group of the node's pods, below the root of every hierarchy."""
        return f"cft-{self.cluster}-{self.name}"

    @property
    def folder(self) -> Path:
        """Folder of the node's configuration and state."""
        return HOME / self.cluster / self.name

    @property
    def containerd(self) -> Path:
        """Socket of the node's container runtime."""
        return self.folder / "containerd.sock"


@dataclass(frozen=True, slots=True)
class Plan:
    """Names and addresses of the cluster `name`."""

    name: str
    net: int

    @property
    def folder(self) -> Path:
        """Folder of everything that the cluster writes."""
        return HOME / self.name

    @property
    def switch(self) -> str:
        """Network namespace of the switch that joins nodes and control plane."""
        return f"cft-{self.name}-switch"

    @property
    def link(self) -> str:
        """The machine's end of its own cable to the switch."""
        return f"cft{self.net}"

    @property
    def address(self) -> str:
        """Address of the control plane on the switch."""
        return f"10.{self.net}.0.1"

    @property
    def loopback(self) -> str:
        """Address of an API server that runs alone."""
        return f"127.{self.net}.0.1"

    @property
    def services(self) -> str:
        """Network of cluster IPs; the first is the API server's."""
        return f"10.{self.net}.128.0/20"

    @property
    def service_address(self) -> str:
        """Cluster IP of the API server."""
        return f"10.{self.net}.128.1"

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def certificates(self) -> Path:
        """Folder of keys and certificates."""
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        """One log a process."""
        return self.folder / "logs"

    def node(self, name: str, index: int, exclusive: tuple[int, ...] = (), *, tainted: bool = False) -> NodePlan:
        """Plan a node."""
        return NodePlan(name, self.name, self.net, index, exclusive, tainted)


def plan(name: str) -> Plan:
    """Plan the cluster `name`; it has the same network each time, and no other cluster of this machine has it.

    Raises:
        ClusterError: the name is not usable, or all networks are taken.
    """
    if not NAME.fullmatch(name):
        raise ClusterError(f"cluster name {name!r}: use up to 20 lower-case letters, digits and dashes")
    with locked("nets"):
        file = HOME / "nets.json"
        known: dict[str, int] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if name not in known:
            known[name] = choose_net(name, set(known.values()), routed(ROUTES.read_text(encoding="utf-8")))
            write(file, json.dumps(known))
    return Plan(name, known[name])


def choose_net(name: str, taken: set[int], used: set[int]) -> int:
    """Choose the second byte of the cluster's addresses, by its name as far as that is free.

    Args:
        name: of the cluster.
        taken: those of other clusters.
        used: those that lead somewhere already, such as into a private network; chosen only if there is no other.
    """
    first = hashlib.sha256(name.encode()).digest()[0]
    nets = [FIRST_NET + (first + step) % NETS for step in range(NETS)]
    free = [net for net in nets if net not in taken]
    if not free:
        raise ClusterError(f"all {NETS} networks are taken; take clusters down and remove {HOME / 'nets.json'}")
    return next((net for net in free if net not in used), free[0])


def write(file: Path, text: str) -> None:
    """Write a file at once: whoever is killed in between leaves the old one."""
    unfinished = file.with_name(f".{file.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.rename(file)


@contextlib.contextmanager
def locked(name: str, *, wait: bool = True) -> Iterator[None]:
    """Take a lock that all users of clusters on this machine share.

    Raises:
        BlockingIOError: somebody else has it, and waiting is not wanted.
    """
    home()
    with (HOME / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def claimed(wish: str) -> Iterator[str]:
    """Claim a cluster name for this process: the wished one, or with a number if somebody else has it."""
    for number in range(1, NETS):
        name = wish if number == 1 else f"{wish}-{number}"
        with _claim(name) as ours:
            if ours and not (HOME / name / KEPT).exists():
                yield name
                return
    raise ClusterError(f"every cluster name like {wish!r} is in use")


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """Claim just this cluster name, which may be of a cluster that is to be kept.

    Raises:
        ClusterError: another process has it.
    """
    with _claim(name) as ours:
        if not ours:
            raise ClusterError(f"another process, such as a run of the tests, is at work on the cluster {name!r}")
        yield


@contextlib.contextmanager
def _claim(name: str) -> Iterator[bool]:
    home()
    with (HOME / f".{name}.claim").open("w") as claim:
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def home() -> Path:
    """Make the folder of all clusters.

    Raises:
        ClusterError: nobody but root can have clusters, and in a folder that is nobody else's.
    """
    if os.geteuid() != 0:
        raise ClusterError("clusters are root's: run this as root")
    HOME.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = HOME.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0:
        raise ClusterError(f"{HOME} is not a folder of root's; remove it")
    HOME.chmod(0o700)
    return HOME


def workers(cluster: Plan, count: int = 2, cpus: frozenset[int] | None = None) -> tuple[NodePlan, ...]:
    """Plan nodes `node-a`, `node-b`… that share out this machine's processors, so that each pins on its own.

    Raises:
        ClusterError: there are fewer processors than nodes, or a single one.
    """
    available = sorted(os.sched_getaffinity(0) if cpus is None else cpus)
    if len(available) <= 1 or len(available) < count:
        raise ClusterError(f"{count} nodes need {max(2, count)} processors, this process may use {len(available)}")
    # From the last processor down: the first serves most interrupts and suits the second node as well as any. The
    # kubelet keeps one for what is not pinned; that is another node's unless there is no other node.
    shared = available if count > 1 else available[1:]
    shares = [tuple(sorted(shared[::-1][place::count])) for place in range(count)]
    return tuple(cluster.node(f"node-{chr(ord('a') + place)}", place, share) for place, share in enumerate(shares))


def system_node(cluster: Plan, index: int) -> NodePlan:
    """Plan a node without pinning for what is no training: the workers' only processors are the trainers'."""
    return cluster.node("system", index, tainted=True)
