"""What the project relies on in a cluster: pinned pods, names, claims, restricted pods, logs, exec, port-forward."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import probes
import pytest
from localcluster.addresses import direct
from localcluster.components import listens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localcluster.kubectl import Kubectl
    from localcluster.provider import Provider

SIZE = "16Mi"
# The goal is 4 s on a quiet machine; the suite prints what it was. This bound holds on a busy one.
RUNNING_SECONDS = 20.0
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope="module")
def pair(cluster: Provider) -> Iterator[str]:
    """Run two pinned pods with claims, `t-0` and `t-1`; return their namespace."""
    # Its own each time: on somebody's cluster the one of the last run may be on its way out still.
    name = f"pods-{secrets.token_hex(4)}"
    kubectl = cluster.kubectl
    kubectl.create_namespace(name)
    started = time.monotonic()
    kubectl.apply(probes.stateful_set("t", size=SIZE), "--namespace", name)
    kubectl.wait("both pods run", lambda: probes.running(kubectl, name, "t-0", "t-1"))
    cluster.seconds["pair"] = time.monotonic() - started
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def kubectl(cluster: Provider) -> Kubectl:
    return cluster.kubectl


def test_two_pinned_pods_run_within_seconds(cluster: Provider, pair: str, record_figure: Any) -> None:
    record_figure(f"two-pod StatefulSet: {cluster.seconds['pair']:.1f} s from apply to both running in {pair}")
    assert cluster.local is None or cluster.seconds["pair"] <= RUNNING_SECONDS


def test_guaranteed_pods_have_a_processor_each_on_a_node_each(cluster: Provider, pair: str) -> None:
    kubectl = cluster.kubectl
    pods = [kubectl.get("--namespace", pair, "pod", name) for name in ("t-0", "t-1")]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    assert {pod["status"]["qosClass"] for pod in pods} == {"Guaranteed"}
    first, second = (probes.affinity(kubectl, pair, name) for name in ("t-0", "t-1"))
    assert len(first) == len(second) == 1
    # The nodes of kind know nothing of each other and may give away the same one.
    assert cluster.local is None or first.isdisjoint(second)


def test_pods_resolve_and_reach_each_other_by_name(kubectl: Kubectl, pair: str) -> None:
    program = "import socket; print(socket.getfqdn())"
    names = [probes.python(kubectl, pair, name, program).strip() for name in ("t-0", "t-1")]
    assert names == [f"t-{number}.t.{pair}.svc.cluster.local" for number in (0, 1)]
    assert probes.reaches(kubectl, pair, "t-0", f"{names[1]}.")
    assert probes.reaches(kubectl, pair, "t-1", f"{names[0]}.")


def test_a_pod_reaches_the_api_server_by_its_service(kubectl: Kubectl, pair: str) -> None:
    assert probes.reaches(kubectl, pair, "t-0", "kubernetes.default.svc", 443)


def test_claims_bind_to_a_volume_of_the_pods_node(kubectl: Kubectl, pair: str) -> None:
    claims = kubectl.get("--namespace", pair, "persistentvolumeclaims")["items"]
    assert {claim["status"]["phase"] for claim in claims} == {"Bound"}
    program = "import pathlib; p=pathlib.Path('/data/x'); p.write_text('kept'); print(p.read_text())"
    assert probes.python(kubectl, pair, "t-0", program).strip() == "kept"


def test_logs_show_what_a_pod_prints(kubectl: Kubectl, pair: str) -> None:
    # The server logs each request, and buffers nothing on standard error.
    fetch = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{probes.PORT}/')"
    probes.python(kubectl, pair, "t-0", fetch)
    kubectl.wait("the request shows", lambda: "GET /" in kubectl("logs", "--namespace", pair, "t-0"), 10)


def test_port_forward_reaches_a_pod(kubectl: Kubectl, pair: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(kubectl.program), f"--kubeconfig={kubectl.kubeconfig}", "port-forward", "--namespace", pair]
    command += ["t-1", f"{port}:{probes.PORT}"]
    forward = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=direct(os.environ))
    try:
        kubectl.wait("the port is forwarded", lambda: listens("127.0.0.1", port), 20)
        with DIRECT.open(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            assert answer.status == 200
    finally:
        forward.terminate()
        forward.wait(10)


def test_a_pod_that_is_not_restricted_is_refused(kubectl: Kubectl, pair: str) -> None:
    pod = probes.pod("loose")
    pod["spec"]["containers"][0]["securityContext"] = {}
    done = kubectl.attempt("apply", "--namespace", pair, "-f", "-", stdin=json.dumps(pod))
    assert done.returncode != 0
    assert "violates PodSecurity" in done.stderr


def test_a_policy_keeps_strangers_out(cluster: Provider, pair: str) -> None:
    kubectl = cluster.kubectl
    target = str(kubectl.get("--namespace", pair, "pod", "t-0")["status"]["podIP"])
    kubectl.apply([probes.pod("stranger", nodeSelector=node_of(kubectl, pair, "t-0"))], "--namespace", pair)
    kubectl.wait("the stranger runs", lambda: probes.running(kubectl, pair, "stranger"))
    assert probes.reaches(kubectl, pair, "stranger", target)
    own = {"podSelector": {"matchLabels": {"app": "t"}}}
    spec = {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "own"}, "spec": spec}
    kubectl.apply([policy], "--namespace", pair)
    kubectl.wait("the stranger is kept out", lambda: not probes.reaches(kubectl, pair, "stranger", target), 15)
    assert probes.reaches(kubectl, pair, "t-1", target)
    kubectl("delete", "networkpolicy", "own", "--namespace", pair)
    kubectl.wait("the stranger is let in", lambda: probes.reaches(kubectl, pair, "stranger", target), 15)


def node_of(kubectl: Kubectl, namespace: str, pod: str) -> dict[str, str]:
    """Return a node selector for the node that a pod is on: traffic within a node takes another way."""
    return {"kubernetes.io/hostname": kubectl.get("--namespace", namespace, "pod", pod)["spec"]["nodeName"]}


def test_children_go_with_their_owner(kubectl: Kubectl, namespace: str) -> None:
    flags = ("--namespace", namespace)
    owner: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    kubectl.apply([owner], *flags)
    uid = kubectl.get(*flags, "configmap", "owner")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "ownerReferences": [reference]}}
    kubectl.apply([child], *flags)
    kubectl("delete", "configmap", "owner", *flags)
    gone = lambda: kubectl.attempt("get", "configmap", "child", *flags).returncode != 0  # noqa: E731
    kubectl.wait("the child is collected", gone, 30)
