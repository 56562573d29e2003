"""Clusters for tests: an API server alone, a whole local cluster, or any cluster that a kubeconfig leads to."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from localcluster import images, plan, programs
from localcluster.cluster import Cluster, down
from localcluster.kubectl import Kubectl
from localcluster.plan import ClusterError, Plan
from localcluster.policy import enforcer
from localcluster.programs import ProgramsError
from localcluster.provider import Provider
from localcluster.tools import ToolsError, require_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Never

HERE = Path(__file__).parent
PROBE = "localhost/cft-probe:1"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cluster")
    group.addoption("--kubeconfig", help="run end-to-end tests on this cluster instead of a local one")
    group.addoption("--reuse", help="run tests/e2e on this local cluster, which is up and has the operator installed")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what clusters need before the first test: it may take longer than a test is given, and shows progress."""
    options = session.config.option
    wanted = {"kubernetes"} if options.kubeconfig else {"kubernetes", "cluster"}
    needed = any(wanted.intersection(getattr(item, "fixturenames", ())) for item in session.items)
    capture = session.config.pluginmanager.getplugin("capturemanager")
    if not needed or options.collectonly or capture is None:
        return
    # What fails here fails again where a test needs it, and is reported there.
    failures = (ToolsError, ProgramsError, ClusterError, images.ImageError, OSError)
    with capture.global_and_fixture_disabled(), contextlib.suppress(*failures):
        require_tools()
        programs.programs()
        images.pause_image()
        images.base_image()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(MEASURED, []):
        terminalreporter.write_line(line)


MEASURED = pytest.StashKey[list[str]]()


def measured(config: pytest.Config, line: str) -> None:
    """Print a figure at the end of the run."""
    config.stash.setdefault(MEASURED, []).append(line)


@pytest.fixture(scope="session")
def record_figure(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return a function that keeps a line for the end of the run."""
    return lambda line: measured(pytestconfig, line)


@pytest.fixture(scope="session")
def kubernetes() -> Path:
    """Return the folder of the Kubernetes programs; built if need be, which takes a quarter of an hour."""
    require_tools()
    return programs.programs()


@pytest.fixture(scope="session")
def probe_image() -> Path:
    """Return the archive of an image with Python in it."""
    images.build(HERE / "cluster" / "probe.Dockerfile", HERE / "cluster", PROBE, {"BASE_IMAGE": images.base_image()})
    return images.archive(PROBE)


@contextlib.contextmanager
def removed_at_the_end(target: Plan) -> Iterator[None]:
    """Take a cluster down whatever happens, also when this process is told to terminate."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        down(target)


def _interrupt(_number: int, _frame: object) -> Never:
    raise KeyboardInterrupt


@pytest.fixture(scope="session")
def apiserver(kubernetes: Path, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Return an API server with etcd and the controllers, but without nodes: pods stay pending."""
    with plan.claimed("api") as name, removed_at_the_end(plan.plan(name)):
        cluster = Cluster(plan.plan(name), kubernetes)
        started = time.monotonic()
        cluster.up_api_server()
        measured(pytestconfig, f"API server alone: up in {time.monotonic() - started:.1f} s")
        cluster.up_controllers()
        yield cluster


@pytest.fixture(scope="session")
def local_cluster(kubernetes: Path, probe_image: Path, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Return a cluster of two nodes that share out the machine's processors."""
    with plan.claimed("test") as name, removed_at_the_end(plan.plan(name)):
        target = plan.plan(name)
        cluster = Cluster(target, kubernetes, [images.pause_image(), probe_image])
        started = time.monotonic()
        cluster.up(plan.workers(target))
        cluster.supervisor.start(enforcer(target, kubernetes))
        measured(pytestconfig, f"two-node cluster: up in {time.monotonic() - started:.1f} s")
        yield cluster


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Provider:
    """Return the cluster of `--kubeconfig`, or else a local one."""
    given = pytestconfig.getoption("kubeconfig")
    if given:
        program = shutil.which("kubectl")
        if program is None:
            pytest.fail("--kubeconfig needs kubectl on PATH")
        return Provider(Kubectl(Path(program), Path(given)))
    local = request.getfixturevalue("local_cluster")
    return Provider(local.kubectl, local)


@pytest.fixture
def namespace(cluster: Provider) -> Iterator[str]:
    """Return a namespace of the test's own that admits restricted pods only."""
    name = f"t-{secrets.token_hex(4)}"
    cluster.kubectl.create_namespace(name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
