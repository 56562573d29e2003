"""The tools that break things, each tried on a real cluster: what tests of failures rest on."""

from __future__ import annotations

import concurrent.futures
import json
import ssl
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import probes
import pytest
from localcluster import network, storage
from localcluster.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localcluster.cluster import Cluster

FLAGS = ("--namespace", "failures")
NODES = ("node-a", "node-b")


@pytest.fixture(scope="module")
def broken(local_cluster: Cluster) -> Iterator[Cluster]:
    """Return the local cluster with a small pod on each node, `on-node-a` and `on-node-b`."""
    kubectl = local_cluster.kubectl
    kubectl.create_namespace("failures")
    pods = [probes.pod(f"on-{node}", nodeSelector={"kubernetes.io/hostname": node}) for node in NODES]
    kubectl.apply(pods, *FLAGS)
    kubectl.wait("the pods run", lambda: probes.running(kubectl, "failures", "on-node-a", "on-node-b"))
    yield local_cluster
    local_cluster.heal_pods()
    kubectl("delete", "namespace", "failures", "--wait=false")


def address(cluster: Cluster, pod: str) -> str:
    return str(cluster.kubectl.get(*FLAGS, "pod", pod)["status"]["podIP"])


def test_a_cut_pod_is_not_reached_until_it_is_healed(broken: Cluster) -> None:
    target = address(broken, "on-node-b")
    assert probes.reaches(broken.kubectl, "failures", "on-node-a", target)
    broken.cut_pod("failures", "on-node-b")
    assert not probes.reaches(broken.kubectl, "failures", "on-node-a", target)
    broken.heal_pods()
    assert probes.reaches(broken.kubectl, "failures", "on-node-a", target)


def test_a_limited_link_is_as_slow_as_it_was_told(broken: Cluster) -> None:
    node = broken.nodes["node-a"].plan
    send = (
        "import socket,sys,time; s=socket.socket(); s.bind(('',9000)); s.listen(); c,_=s.accept(); t=time.monotonic()\n"
        "n=0\nwhile d:=c.recv(1<<16):\n  n+=len(d)\nprint(n*8/1e6/(time.monotonic()-t))"
    )
    receive = (
        "import socket,sys,time\nfor _ in range(50):\n"
        "  try:\n    s=socket.create_connection((sys.argv[1],9000)); break\n"
        "  except OSError: time.sleep(.1)\ns.sendall(bytes(6_000_000)); s.close()"
    )
    network.limit(node, "20mbit")
    try:
        rate = stream(broken, send, receive)
    finally:
        network.unlimit(node)
    assert 10 < rate < 22


def stream(cluster: Cluster, server: str, client: str) -> float:
    """Run a server in the pod on node b and a client on node a; return what the server prints."""
    target = address(cluster, "on-node-b")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        served = pool.submit(probes.python, cluster.kubectl, "failures", "on-node-b", server)
        probes.python(cluster.kubectl, "failures", "on-node-a", client, target)
        return float(served.result(timeout=60))


def test_a_full_volume_takes_no_more(broken: Cluster) -> None:
    folder = broken.plan.node("node-a", 0).folder / "volumes" / "small"
    storage.prepare(broken.nodes["node-a"].plan, ["small"], mebibytes=1)
    file = storage.fill(folder)
    with pytest.raises(OSError, match="No space left"):
        (folder / "more").write_bytes(b"x" * 65536)
    file.unlink()
    (folder / "more").write_bytes(b"x" * 65536)


def test_a_paused_api_server_answers_once_it_goes_on(broken: Cluster) -> None:
    broken.pause_api_server()
    try:
        done = broken.kubectl.attempt("get", "--raw", "/readyz", "--request-timeout=1s")
        assert done.returncode != 0
    finally:
        broken.resume_api_server()
    broken.kubectl.wait("it answers", lambda: broken.kubectl.attempt("get", "--raw", "/readyz").stdout == "ok", 20)


def test_a_restarted_api_server_kept_everything(broken: Cluster) -> None:
    before = broken.supervisor.pid("kube-apiserver")
    broken.restart_api_server()
    assert broken.supervisor.pid("kube-apiserver") not in {before, None}
    assert broken.kubectl.get(*FLAGS, "pod", "on-node-a")["status"]["phase"] == "Running"


@pytest.fixture(scope="module")
def faults(broken: Cluster) -> Faults:
    """Return the running fault proxy."""
    proxy = Faults(broken.plan)
    broken.supervisor.start(proxy.component())
    return proxy


def test_the_fault_proxy_refuses_with_429_and_lets_through_again(broken: Cluster, faults: Faults) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "guest"}}
    subject = {"kind": "ServiceAccount", "name": "guest", "namespace": "failures"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "guest"}}
    broken.kubectl.apply([account, {**binding, "roleRef": role, "subjects": [subject]}], *FLAGS)
    token = broken.kubectl("create", "token", "guest", *FLAGS)
    authority = str(broken.authority.certificate)
    context = ssl.create_default_context(cafile=authority)
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(*handlers)
    url = f"{faults.server}/api/v1/namespaces/failures/pods"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - our proxy

    def pods() -> list[Any]:
        with opener.open(request, timeout=10) as answer:
            return list(json.load(answer)["items"])

    assert len(pods()) >= len(NODES)
    faults.refuse(retry_after=3)
    with pytest.raises(urllib.error.HTTPError, match="429") as refused:
        pods()
    assert refused.value.headers["Retry-After"] == "3"
    refused.value.close()
    faults.serve()
    assert len(pods()) >= len(NODES)


def test_a_node_without_kubelet_is_not_ready_while_its_pods_run(broken: Cluster) -> None:
    broken.stop_kubelet("node-b")
    try:
        broken.kubectl.wait("the node is not ready", lambda: not broken.ready("node-b"), 40)
        assert probes.reaches(broken.kubectl, "failures", "on-node-a", address(broken, "on-node-b"))
    finally:
        broken.start_node("node-b")
    broken.kubectl.wait("the node is ready", lambda: broken.ready("node-b"), 40)


@pytest.mark.timeout(240)
def test_the_pod_of_a_killed_node_goes_and_returns_with_the_node(broken: Cluster, record_figure: Any) -> None:
    kubectl = broken.kubectl
    kubectl.apply(probes.stateful_set("k"), *FLAGS)
    kubectl.wait("both pods run", lambda: probes.running(kubectl, "failures", "k-0", "k-1"))
    victim = next(pod for pod in ("k-0", "k-1") if node_of(broken, pod) == "node-b")
    uid = kubectl.get(*FLAGS, "pod", victim)["metadata"]["uid"]
    started = time.monotonic()
    broken.kill_node("node-b")
    assert f"{broken.nodes['node-b'].plan.folder}/" not in network.run("ps", "-eo", "args")
    kubectl.wait("the node is not ready", lambda: not broken.ready("node-b"), 60)
    lost = time.monotonic() - started
    kubectl.wait("the pod is on its way out", lambda: leaving(broken, victim), 60)
    broken.start_node("node-b")
    kubectl.wait("the pod is back", lambda: renewed(broken, victim, uid), 90)
    record_figure(
        f"killed node: not ready after {lost:.0f} s, its pod runs again after {time.monotonic() - started:.0f} s"
    )
    kubectl("delete", "statefulset", "k", *FLAGS)


def node_of(cluster: Cluster, pod: str) -> str:
    return str(cluster.kubectl.get(*FLAGS, "pod", pod)["spec"]["nodeName"])


def leaving(cluster: Cluster, pod: str) -> bool:
    return "deletionTimestamp" in cluster.kubectl.get(*FLAGS, "pod", pod)["metadata"]


def renewed(cluster: Cluster, pod: str, uid: str) -> bool:
    done = cluster.kubectl.attempt(*("get", "pod", pod), *FLAGS, "--output=jsonpath={.metadata.uid}")
    return done.stdout not in {uid, ""} and probes.running(cluster.kubectl, "failures", pod)
