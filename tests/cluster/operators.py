"""The operator as a process of its own, with a user of its own; and what users and kubelets do around it."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import yaml
from localcluster import kubectl
from localcluster.addresses import direct
from localcluster.plan import ClusterError

sys.path.append(str(Path(__file__).parents[1] / "bench"))
import audit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from localcluster.cluster import Cluster

__all__ = ["CHILDREN", "RULES", "Operator", "Place", "allowed", "audit", "rights", "rules_everywhere", "until", "used"]

Document = dict[str, Any]

ROOT = Path(__file__).parents[2]
RULES: list[Document] = yaml.safe_load((ROOT / "manifests" / "rbac" / "role.yaml").read_text(encoding="utf-8"))["rules"]
RBAC = "rbac.authorization.k8s.io"
SERVING = re.compile(r"serving .*\('0\.0\.0\.0', (\d+)\)")
COLLECTIONS = {
    "Service": "/api/v1/namespaces/{}/services",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Pod": "/api/v1/namespaces/{}/pods",
}
LABEL = "cpufinetune.dev/job"
CHILDREN = ("Service", "NetworkPolicy", "StatefulSet")
JOBS = "/apis/cpufinetune.dev/v1alpha1/namespaces/{}/cpufinetunes"
READY_SECONDS, WAIT_SECONDS, POLL_SECONDS = 30.0, 30.0, 0.03
MERGE = "merge-patch+json"


class Reply(Protocol):
    """What a request is answered with."""

    @property
    def refused(self) -> bool:
        """Whether it was not carried out."""

    @property
    def object(self) -> Document:
        """The object, if it was."""


class Requests(Protocol):
    """An administrator's requests to the API server."""

    def request(self, method: str, path: str, body: object = None, kind: str = "json", **query: str) -> Reply:
        """Send one."""


def rights(user: str, rules: Sequence[Document] = RULES, namespace: str = "") -> Iterator[Document]:
    """Give a user these rules, in a namespace or in the whole cluster."""
    prefix = "" if namespace else "Cluster"
    metadata = {"name": user} | ({"namespace": namespace} if namespace else {})
    head = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    yield {**head, "kind": f"{prefix}Role", "rules": list(rules)}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user}]
    role = {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": user}
    yield {**head, "kind": f"{prefix}RoleBinding", "roleRef": role, "subjects": subjects}


def rules_everywhere() -> list[Document]:
    """Return the rules with what the cluster-wide overlay adds."""
    file = ROOT / "manifests" / "overlays" / "cluster-wide" / "kustomization.yaml"
    overlay = yaml.safe_load(file.read_text(encoding="utf-8"))
    changes = [change for patch in overlay["patches"] for change in yaml.safe_load(patch["patch"])]
    return [*RULES, *(change["value"] for change in changes if change["path"] == "/rules/-")]


def allowed(rules: Sequence[Document] = RULES) -> set[tuple[str, str, str]]:
    """Return what rules allow: verbs, groups and resources."""
    return {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(entries: Iterator[Document], user: str) -> set[tuple[str, str, str]]:
    """Return what a user asked for by the entries of an audit log, in the words of a rule."""
    found = set()
    for entry in entries:
        target = entry.get("objectRef")
        if entry["user"]["username"] == user and target:
            resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
            found.add((entry["verb"], target.get("apiGroup", ""), resource))
    return found


def until(what: str, done: Callable[[], object], seconds: float = WAIT_SECONDS) -> float:
    """Wait until `done()` is true; return the seconds it took.

    Raises:
        ClusterError: it is not in time.
    """
    return kubectl.until(what, done, seconds, pause=POLL_SECONDS)


class Operator:
    """A running operator. It ends with the `with` block, if it did not before."""

    def __init__(self, cluster: Cluster, user: str, *flags: str) -> None:
        self.user = user
        self.log = cluster.plan.logs / f"{user}-{time.time_ns()}.log"
        command = (sys.executable, "-m", "cpufinetune_operator", "--trainer-image=none", "--no-progress", "--port=0")
        environment = {**direct(os.environ), "KUBECONFIG": str(cluster.kubeconfig(user))}
        self._started = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*command, *flags], env=environment, stdout=log, stderr=log, cwd=ROOT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def ready(self) -> float:
        """Wait until it says that it is ready; return the seconds since its start."""
        try:
            until("the operator is ready", lambda: self.get("/readyz") == "ok\n", READY_SECONDS)
        except ClusterError as error:
            raise ClusterError(f"{error}\n{self.text()}") from error
        return time.monotonic() - self._started

    def get(self, path: str) -> str:
        """Return what it serves; empty if it does not, or not well."""
        port = SERVING.search(self.text())
        if port is None:
            return ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            return ""

    def metric(self, name: str) -> float:
        """Return one of its figures."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else float("nan")

    def text(self) -> str:
        """Return its log."""
        return self.log.read_text(encoding="utf-8")

    def cpu_seconds(self) -> float:
        """Return the processor time that it took so far."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it as a machine that burns would."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> tuple[int, float]:
        """Ask it to end; return its exit code and the seconds it took."""
        started = time.monotonic()
        self.process.terminate()
        return self.process.wait(timeout=30), time.monotonic() - started


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace: jobs in it, and their pods' kubelets."""

    api: Requests
    namespace: str
    uids: dict[str, dict[str, str]] = field(default_factory=dict)

    def create(self, document: Document) -> Document:
        """Create a job."""
        return self.api.request("POST", JOBS.format(self.namespace), document).object

    def job(self, name: str) -> Document:
        """Return a job."""
        return self.api.request("GET", f"{JOBS.format(self.namespace)}/{name}").object

    def has(self, name: str) -> bool:
        """Tell whether a job is there."""
        return not self.api.request("GET", f"{JOBS.format(self.namespace)}/{name}").refused

    def merge(self, name: str, **spec: object) -> None:
        """Change a job."""
        path = f"{JOBS.format(self.namespace)}/{name}"
        assert not self.api.request("PATCH", path, {"spec": spec}, MERGE).refused

    def delete(self, name: str) -> None:
        """Delete a job as kubectl does."""
        body = {"propagationPolicy": "Background"}
        assert not self.api.request("DELETE", f"{JOBS.format(self.namespace)}/{name}", body).refused

    def status(self, name: str) -> Document:
        """Return a job's status; empty before the operator saw it."""
        return dict(self.job(name).get("status", {}))

    def condition(self, name: str, kind: str) -> Document:
        """Return a condition of a job; empty if it has none."""
        return next((one for one in self.status(name).get("conditions", ()) if one["type"] == kind), {})

    def listed(self, kind: str, name: str) -> list[Document]:
        """Return a job's objects of a kind."""
        found = self.api.request("GET", COLLECTIONS[kind].format(self.namespace), labelSelector=f"{LABEL}={name}")
        return list(found.object["items"])

    def children(self, name: str) -> dict[str, str]:
        """Return the uids of a job's children by kind."""
        return {kind: one["metadata"]["uid"] for kind in CHILDREN for one in self.listed(kind, name)}

    def objects(self, name: str) -> list[str]:
        """Return all that there is of a job, its pods too."""
        return [f"{kind} {one['metadata']['name']}" for kind in COLLECTIONS for one in self.listed(kind, name)]

    def remove_children(self, name: str) -> None:
        """Delete a job's children by hand, and see them gone."""
        for kind in CHILDREN:
            path = f"{COLLECTIONS[kind].format(self.namespace)}/{name}"
            assert not self.api.request("DELETE", path, {"propagationPolicy": "Background"}).refused
        until(f"the children of {name} are gone", lambda: not self.children(name))

    def replicas(self, name: str) -> int | None:
        """Return the wanted pods of a job's StatefulSet; None if it has none."""
        return next((int(one["spec"]["replicas"]) for one in self.listed("StatefulSet", name)), None)

    def has_phase(self, name: str, phase: str) -> None:
        """Wait for a phase."""
        until(f"{name} is {phase}", lambda: self.status(name).get("phase") == phase)

    def has_pods(self, name: str) -> None:
        """Wait for the pods of a job."""
        wanted = self.job(name)["spec"]["nodes"]
        until(f"{name} has its pods", lambda: len(self.listed("Pod", name)) == wanted)

    def has_ended(self, name: str, phase: str = "Succeeded") -> None:
        """Wait until a job has ended and has no pods left."""
        self.has_phase(name, phase)
        until(f"{name} is scaled down", lambda: not self.replicas(name) and not self.listed("Pod", name))

    def play(self, name: str, states: Callable[[int], Document]) -> None:
        """Set the state of the trainer of each pod, as its kubelet would."""
        # Node 0 last: the operator may take all pods away once that one has spoken.
        for pod in reversed(self.listed("Pod", name)):
            full, index = pod["metadata"]["name"], int(pod["metadata"]["name"].rpartition("-")[2])
            trainer = {"name": "trainer", "image": "none", "imageID": "none", "restartCount": 0, "ready": False}
            status = {"phase": "Running", "containerStatuses": [{**trainer, "state": states(index)}]}
            path = f"{COLLECTIONS['Pod'].format(self.namespace)}/{full}/status"
            assert self.api.request("PATCH", path, {"status": status}, MERGE).object

    def fits_nowhere(self, name: str) -> None:
        """Say of all pods of a job that no machine is as they want it, as the scheduler would."""
        text = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        for pod in self.listed("Pod", name):
            path = f"{COLLECTIONS['Pod'].format(self.namespace)}/{pod['metadata']['name']}/status"
            assert self.api.request("PATCH", path, {"status": {"conditions": [condition]}}, MERGE).object

    def run(self, name: str) -> None:
        """Let all pods of a job run."""
        self.play(name, lambda _: {"running": {"startedAt": now()}})

    def end(self, name: str, code: int = 0, **words: object) -> None:
        """Let all launchers of a job end with a code and their last words."""
        uid = self.job(name)["metadata"]["uid"]

        def ended(index: int) -> Document:
            said = {"attempt": 1, "restarts": 0, **words} if index == 0 else {"node": index}
            message = json.dumps({"schema": 1, "uid": uid, "code": code, **said})
            return {"terminated": {"exitCode": code, "finishedAt": now(), "message": message, "reason": "Error"}}

        self.play(name, ended)


def now() -> str:
    """Return the time as kubelets write it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
