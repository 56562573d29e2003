"""A cluster leaves nothing behind, neither when it is taken down nor when its owner crashed."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import probes
import pytest
from localcluster import cgroups, images, leftovers, network, plan, store
from localcluster.cluster import Cluster, down
from localcluster.plan import ClusterError
from localcluster.store import LINKED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Traces:
    """What a cluster of a name and network could leave on the machine."""

    processes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    links: frozenset[str]
    namespaces: frozenset[str]
    routes: frozenset[str]
    results: frozenset[str]


NOTHING = Traces(*(frozenset[str]() for _ in fields(Traces)))


def traces(cluster: plan.Plan) -> Traces:
    """Look at the machine for all that mentions the cluster."""
    mark = str(cluster.folder)
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    commands = network.run("ps", "-eo", "args").splitlines()
    names = {f"cft-{cluster.name}-{name}" for name in ("node-a", "node-b", "switch")}
    groups = {str(root / name) for root in cgroups.hierarchies() for name in names if (root / name).exists()}
    namespaces = {line.split(" ")[0] for line in network.run("ip", "netns", "list").splitlines()}
    results = leftovers.RESULTS.iterdir() if leftovers.RESULTS.exists() else ()
    return Traces(
        frozenset(line for line in commands if f"{mark}/" in line),
        frozenset(line for line in mounts if f"{mark}/" in line),
        frozenset(groups),
        frozenset(link for link in network.links() if link.startswith(cluster.link)),
        frozenset(namespaces & names),
        frozenset(line for line in network.run("ip", "route").splitlines() if f"10.{cluster.net}." in line),
        frozenset(file.name for file in results if f"{mark}/" in file.read_text(encoding="utf-8")),
    )


def content(archives: Sequence[Path]) -> dict[str, str]:
    """Digests of the files that all clusters with these images share."""
    folder = plan.HOME / ".store" / store.name(archives) / "containerd"
    files = (file for part in LINKED for file in (folder / part).rglob("*") if file.is_file() and not file.is_symlink())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def second(kubernetes: Path, local_cluster: Cluster) -> Iterator[Cluster]:
    """Return a second cluster, beside the first; not up yet."""
    assert local_cluster.plan.kubeconfig.exists()
    with plan.claimed("clean") as name:
        cluster = Cluster(plan.plan(name), kubernetes, [images.pause_image()])
        down(cluster.plan)
        yield cluster
        down(cluster.plan)


@pytest.mark.timeout(180)
def test_a_second_cluster_comes_and_goes_without_a_trace(second: Cluster, local_cluster: Cluster) -> None:
    tables = network.run("nft", "list", "tables")
    assert traces(second.plan) == NOTHING
    second.up(plan.workers(second.plan))
    shared = content(second.archives)
    run_a_pod(second)
    during = traces(second.plan)
    assert all(getattr(during, field.name) for field in fields(Traces))
    sockets = {path for node in second.nodes.values() for path in leftovers.shim_sockets(node.plan.folder)}
    assert any(path.is_socket() for path in sockets)
    assert all(local_cluster.ready(node) for node in local_cluster.nodes)
    down(second.plan)
    assert traces(second.plan) == NOTHING
    assert not any(path.exists() for path in sockets)
    assert network.run("nft", "list", "tables") == tables
    assert not second.plan.folder.exists()
    assert content(second.archives) == shared != {}
    assert all(local_cluster.ready(node) for node in local_cluster.nodes)


def run_a_pod(cluster: Cluster) -> None:
    kubectl = cluster.kubectl
    kubectl.wait("the service account", lambda: kubectl.attempt("get", "serviceaccount", "default").returncode == 0)
    pod = probes.pod("p")
    pod["spec"]["containers"][0] |= {"image": images.PAUSE, "args": []}
    kubectl.apply([pod])
    kubectl.wait("the pod runs", lambda: probes.running(kubectl, "default", "p"))


@pytest.mark.timeout(180)
def test_a_cluster_goes_whose_folder_is_gone(second: Cluster) -> None:
    second.up(plan.workers(second.plan)[:1])
    leftovers.unmount(second.plan.folder)
    shutil.rmtree(second.plan.folder, ignore_errors=True)
    assert traces(second.plan).processes
    down(second.plan)
    assert traces(second.plan) == NOTHING


@pytest.mark.timeout(180)
def test_what_a_crashed_owner_left_is_cleaned_by_the_next_up(second: Cluster) -> None:
    second.up(plan.workers(second.plan))
    left = [second.supervisor.pid(name) for name in second.supervisor.names()]
    assert None not in left
    # The next owner knows nothing but the name.
    heir = Cluster(second.plan, second.programs, second.archives)
    heir.up(plan.workers(heir.plan))
    assert {heir.supervisor.pid(name) for name in heir.supervisor.names()}.isdisjoint(left)
    running = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    assert running.isdisjoint({pid for pid in left if pid is not None})


def test_an_impossible_cluster_says_why() -> None:
    target = plan.Plan("any", 64)
    with pytest.raises(ClusterError, match="3 nodes need 3 processors, this process may use 2"):
        plan.workers(target, 3, frozenset({0, 1}))
    with pytest.raises(ClusterError, match="use up to 20 lower-case letters"):
        plan.plan("Not A Name")
