"""Enforces NetworkPolicy objects in the nodes' namespaces: `python -m localcluster.policy CLUSTER_NAME PROGRAMS`.

It follows changes within half a second. Until then a new pod is as free as if there were no policy, as with other
network plug-ins; connections outlive the policy that forbids them.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster.kubectl import Kubectl
from localcluster.network import run
from localcluster.plan import ClusterError, Plan, plan
from localcluster.policy_rules import rules
from localcluster.process import Component

if TYPE_CHECKING:
    from typing import IO, Never

READY = "policy.ready"
KINDS = {"NetworkPolicy": "networkpolicies", "Pod": "pods", "Namespace": "namespaces"}
BRIDGED = "net.bridge.bridge-nf-call-iptables"
RETRY_SECONDS = 0.5
# Watches miss nothing but a change between their end and the next start.
RESYNC_SECONDS = 5.0
# Changes come in bursts.
GATHER_SECONDS = 0.1


def enforcer(cluster: Plan, programs: Path) -> Component:
    """The process that enforces policies on all nodes, also on those that come later."""
    folders = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    argv = (sys.executable, "-P", "-m", "localcluster.policy", cluster.name, str(programs))
    environment = {"PYTHONPATH": os.pathsep.join(folders)}
    return Component("policy", argv, lambda: is_held(cluster.folder / READY), environment=environment)


@dataclass(frozen=True, slots=True)
class Enforcer:
    """Gives nodes their rules, and remembers in `applied` what each has."""

    cluster: Plan
    kubectl: Kubectl
    applied: dict[str, str] = field(default_factory=dict)

    def attempt(self) -> str:
        """Bring all nodes up to date; return what went wrong."""
        try:
            items = self.kubectl.get(",".join(KINDS.values()), "--all-namespaces")["items"]
            policies, pods, namespaces = ([one for one in items if one["kind"] == kind] for kind in KINDS)
            wanted = rules(policies, pods, namespaces)
        except (ClusterError, OSError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
            return str(error)
        return "; ".join(filter(None, (self._attempt(node, text) for node, text in wanted.items())))

    def _attempt(self, node: str, text: str) -> str:
        try:
            self.apply(node, text)
        except ClusterError as error:
            return f"{node}: {error}"
        return ""

    def apply(self, node: str, text: str) -> None:
        """Give a node its rules, unless it has them.

        Raises:
            ClusterError: they do not hold there.
        """
        if self.applied.get(node) == text:
            return
        namespace = self.cluster.node(node, 0).namespace
        run("nft", "-f", "-", namespace=namespace, stdin=text)
        if run("sysctl", "-n", BRIDGED, namespace=namespace, check=False).strip() != "1":
            raise ClusterError(f"policies do not hold between its own pods: {BRIDGED} is not 1; modprobe br_netfilter")
        self.applied[node] = text
        _say(f"{node}: isolations: {text.count(' : jump ')}")


@dataclass(frozen=True, slots=True)
class Changes:
    """Watches which tell, on a pipe of theirs, that something has changed; polling costs a tenth of a processor."""

    kubectl: Kubectl
    pipe: tuple[int, int] = field(default_factory=os.pipe)
    watches: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def watch(self) -> None:
        """Start the watches that do not run: the API server ends each after some time. New ones tell what there is."""
        for kind in KINDS.values():
            if kind not in self.watches or self.watches[kind].poll() is not None:
                program = (str(self.kubectl.program), f"--kubeconfig={self.kubectl.kubeconfig}")
                argv = (*program, "get", kind, "--all-namespaces", "--watch", "--output=name")
                self.watches[kind] = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=self.pipe[1], stderr=subprocess.DEVNULL
                )

    def wait(self, seconds: float) -> bool:
        """Wait for a change, and for those that come with it; tell whether there was one."""
        if not self._told(seconds):
            return False
        time.sleep(GATHER_SECONDS)
        while self._told(0):
            os.read(self.pipe[0], select.PIPE_BUF)
        return True

    def _told(self, seconds: float) -> bool:
        return bool(select.select([self.pipe[0]], [], [], seconds)[0])

    def close(self) -> None:
        """End the watches."""
        for process in self.watches.values():
            process.kill()
            process.wait()
        for end in self.pipe:
            os.close(end)


def hold(file: Path) -> IO[str]:
    """Write a file that says, until it is closed, that this process is ready."""
    held = file.open("w", encoding="utf-8")
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


def is_held(file: Path) -> bool:
    """Tell whether a process that is still there holds the file."""
    try:
        with file.open(encoding="utf-8") as other:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def main() -> Never:
    """Enforce until stopped."""
    cluster = plan(sys.argv[1])
    kubectl = Kubectl(Path(sys.argv[2]) / "kubectl", cluster.kubeconfig)
    enforcing, changes, wrong = Enforcer(cluster, kubectl), Changes(kubectl), ""
    ready: IO[str] | None = None
    while True:
        before, wrong = wrong, enforcing.attempt()
        if wrong != before:
            _say(wrong or "all is well again")
        if not wrong:
            ready = ready or hold(cluster.folder / READY)
            changes.watch()
        changes.wait(RETRY_SECONDS if wrong else RESYNC_SECONDS)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    main()
