"""Small restricted pods for tests: each serves HTTP on port 8000 and answers small Python programs through exec."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localcluster.kubectl import Kubectl

IMAGE = "localhost/cft-probe:1"
PORT = 8000
# What Pod Security calls restricted.
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "fsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
SERVE = ["-m", "http.server", str(PORT), "--directory", "/tmp"]  # noqa: S108 - in the pod
EXPECT = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()"


def pod_spec(*, cpu: str | None = "1", claim: str | None = None, **fields: Any) -> dict[str, Any]:
    """Describe a pod that serves HTTP, Guaranteed if it asks for CPU; with a claim it has that mounted at /data."""
    resources = {"memory": "64Mi", **({"cpu": cpu} if cpu else {})}
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": SERVE,
        "resources": {"requests": resources, "limits": resources},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}] if claim else [],
    }
    return {
        "containers": [container],
        "securityContext": POD_SECURITY,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        **fields,
    }


def pod(name: str, *, labels: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """Describe one pod that takes nothing of a node's only processor."""
    metadata = {"name": name, "labels": {"app": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(cpu=None, **fields)}


def stateful_set(name: str, *, replicas: int = 2, size: str | None = None) -> list[dict[str, Any]]:
    """Describe a set of pinned pods with a headless Service, and a claim of `size` for each if given."""
    labels = {"app": name}
    # One a node, also where a node has processors for more.
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    spec = pod_spec(claim="data" if size else None, topologySpreadConstraints=[spread])
    template = {"metadata": {"labels": labels}, "spec": spec}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size or "1Mi"}}},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True, "ports": [{"port": PORT}]},
    }
    workload = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": template,
            "volumeClaimTemplates": [claim] if size else [],
        },
    }
    return [service, workload]


def python(kubectl: Kubectl, namespace: str, name: str, program: str, *argv: str) -> str:
    """Run a Python program in a pod; return what it prints."""
    return kubectl("exec", "--namespace", namespace, name, "--", "python3", "-c", program, *argv)


def reaches(kubectl: Kubectl, namespace: str, name: str, host: str, port: int = PORT) -> bool:
    """Tell whether a TCP connection from a pod succeeds."""
    done = kubectl.attempt("exec", "--namespace", namespace, name, "--", "python3", "-c", EXPECT, host, str(port))
    return done.returncode == 0


def running(kubectl: Kubectl, namespace: str, *names: str) -> bool:
    """Tell whether pods run and are not on their way out."""
    found = {item["metadata"]["name"]: item for item in kubectl.get("--namespace", namespace, "pods")["items"]}
    return all(
        name in found
        and found[name]["status"].get("phase") == "Running"
        and "deletionTimestamp" not in found[name]["metadata"]
        and all(status["ready"] for status in found[name]["status"].get("containerStatuses", [{"ready": False}]))
        for name in names
    )


def affinity(kubectl: Kubectl, namespace: str, name: str) -> set[int]:
    """Return the processors that a pod may use."""
    text = python(kubectl, namespace, name, "import os,json; print(json.dumps(sorted(os.sched_getaffinity(0))))")
    return set(json.loads(text))
