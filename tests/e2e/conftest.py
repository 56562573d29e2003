"""The product on a cluster: images built, operator installed from the manifests, model and data on claims."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import product
import pytest
from localcluster import images, plan, storage
from localcluster.cluster import Cluster, attach, down
from localcluster.policy import enforcer
from product import Installed

from cpufinetune.job.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ROOT = Path(__file__).parents[2]
DEMO = ROOT / ".cache" / "demo"
EXAMPLES = ROOT / "manifests" / "examples" / "cluster"


@pytest.fixture(scope="session")
def product_images(probe_image: Path) -> list[Path]:
    """Return archives of everything that a node needs."""
    return [images.pause_image(), probe_image, *product.build_images()]


@pytest.fixture(scope="session")
def installed(
    kubernetes: Path,
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installed]:
    """Return a cluster of two pinned workers and a node for the operator, which runs."""
    reused = pytestconfig.getoption("reuse")
    if reused:
        yield Installed(attach(plan.plan(reused), kubernetes))
        return
    product_images = request.getfixturevalue("product_images")
    with plan.claimed("e2e") as name:
        target = plan.plan(name)
        cluster = Cluster(target, kubernetes, product_images)
        workers = plan.workers(target)
        try:
            cluster.up([*workers, plan.system_node(target, len(workers))])
            cluster.supervisor.start(enforcer(target, kubernetes))
            product.install(cluster.kubectl, tmp_path_factory.mktemp("overlay"))
            yield Installed(cluster)
        finally:
            down(cluster.plan)


@pytest.fixture
def workspace(installed: Installed, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a restricted namespace with the claims `models` and `datasets`."""
    # A name of its own in each run: volumes remember the claims of the last one.
    run = f"{time.time_ns() // 1_000_000 % 0xFFFF:04x}"
    name = f"{request.node.name.replace('_', '-').removeprefix('test-')[:30].strip('-[]').lower()}-{run}"
    installed.kubectl.create_namespace(name)
    claims = [*storage.shared("models", DEMO, namespace=name), *storage.shared("datasets", DEMO, namespace=name)]
    installed.kubectl.apply(claims, "--namespace", name)
    yield name
    installed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def example() -> Callable[..., dict[str, Any]]:
    """Return an example document by name, with changes of its spec: `example("reuters-r8", nodes=1)`."""

    def build(name: str, **changes: Any) -> dict[str, Any]:
        document: dict[str, Any] = read_yaml((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"), name)
        for key, value in changes.items():
            old = document["spec"].get(key)
            document["spec"][key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        return document

    return build
