"""A cluster leaves nothing behind, neither when it is taken down nor when its owner crashed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from localcluster import cgroups, images, network, plan
from localcluster.cluster import Cluster, down
from localcluster.plan import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Traces:
    """What a cluster of a name and network could leave on the machine."""

    processes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]
    links: frozenset[str]
    namespaces: frozenset[str]
    routes: frozenset[str]


NOTHING = Traces(*(frozenset[str]() for _ in range(6)))


def traces(cluster: plan.Plan) -> Traces:
    """Look at the machine for all that mentions the cluster."""
    mark = str(cluster.folder)
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    commands = network.run("ps", "-eo", "args").splitlines()
    groups = {str(path) for root in cgroups.hierarchies() for path in root.glob(f"cft-{cluster.name}-*")}
    namespaces = network.run("ip", "netns", "list").split("\n")
    return Traces(
        frozenset(line for line in commands if f"{mark}/" in line),
        frozenset(line for line in mounts if f"{mark}/" in line),
        frozenset(groups),
        frozenset(link for link in network.links() if link.startswith(cluster.bridge)),
        frozenset(line for line in namespaces if line.startswith(f"cft-{cluster.name}-")),
        frozenset(line for line in network.run("ip", "route").splitlines() if f"10.{cluster.net}." in line),
    )


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
    during = traces(second.plan)
    assert all((during.processes, during.mounts, during.cgroups, during.links, during.namespaces, during.routes))
    assert all(local_cluster.ready(node) for node in local_cluster.nodes)
    down(second.plan)
    assert traces(second.plan) == NOTHING
    assert network.run("nft", "list", "tables") == tables
    assert not second.plan.folder.exists()
    assert all(local_cluster.ready(node) for node in local_cluster.nodes)


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
