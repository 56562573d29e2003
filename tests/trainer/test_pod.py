"""Real pods without a cluster: launchers in network namespaces of their own, restarted as the kubelet would."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IP = shutil.which("ip") or ""
COMMAND = Path(sys.executable).with_name("cpufinetune")
LONGEST = 240.0  # seconds
POLL = 0.2
STEPS = 117  # some seconds, for a page that is made once a second
PORT = 8080
NODES = (0, 1)
PARKED = "waiting to be removed"
NETWORKS = {4: "10.213.{0}.0/24", 6: "fd13:{0}::/64"}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True, scope="module")
def privileges() -> None:
    if os.geteuid() != 0 or not IP:
        pytest.fail("run these tests as root, with ip installed: their pods have network namespaces")


def ip(*arguments: object) -> None:
    subprocess.run([IP, *map(str, arguments)], check=True, capture_output=True)


@dataclass
class Pods:
    """The two pods of a job. Each has an address, a core, and `scratch`, `output` and `message` below its folder."""

    folder: Path
    data: Path
    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    tag: str
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def connect(self) -> None:
        """Put the pods on one network, of which this process is a part."""
        ip("link", "add", self.tag, "type", "bridge")
        self._join([], self.tag, 1)
        lines = []
        for node in NODES:
            (self.folder / f"models-{node}").mkdir(parents=True)
            ip("netns", "add", f"{self.tag}-{node}")
            ip("link", "add", f"{self.tag}v{node}", "type", "veth", "peer", "eth0", "netns", f"{self.tag}-{node}")
            ip("link", "set", f"{self.tag}v{node}", "master", self.tag, "up")
            ip("-n", f"{self.tag}-{node}", "link", "set", "lo", "up")
            self._join(["-n", f"{self.tag}-{node}"], "eth0", 10 + node)
            lines.append(f"{self.network[10 + node]} test-{node}.test.ml.svc.cluster.local.\n")
        (self.folder / "hosts").write_text("".join(lines), encoding="utf-8")
        search = "search ml.svc.cluster.local svc.cluster.local cluster.local\n"
        (self.folder / "resolv.conf").write_text(search, encoding="utf-8")

    def _join(self, where: list[str], device: str, host: int) -> None:
        nodad = ["nodad"] if self.network.version == 6 else []
        ip(*where, "addr", "add", f"{self.network[host]}/{self.network.prefixlen}", "dev", device, *nodad)
        ip(*where, "link", "set", device, "up")

    def close(self) -> None:
        """Remove all that is left."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        # The kernel takes a namespace down when it likes: its links go first.
        links = [f"{self.tag}v{node}" for node in NODES] + [self.tag]
        commands = [("link", "del", link) for link in links]
        for command in (*commands, *(("netns", "del", f"{self.tag}-{node}") for node in NODES)):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(*command)

    def start(self, *nodes: int) -> None:
        """Start containers, or start them again."""
        for node in nodes or NODES:
            options = {
                "job": self.folder / "job.yaml",
                "scratch": self.folder / f"scratch-{node}",
                "output-root": self.folder / f"output-{node}",
                "model-root": self.folder / f"models-{node}",
                "data-root": self.data,
                "termination-message": self.folder / f"message-{node}",
                "resolv-conf": self.folder / "resolv.conf",
                "host-name": f"test-{node}",
            }
            words = [str(COMMAND), "pod", *(word for name, value in options.items() for word in (f"--{name}", value))]
            script = f'mount --bind {self.folder / "hosts"} /etc/hosts && exec taskset -c {node} "$@"'
            command = [IP, "netns", "exec", f"{self.tag}-{node}", "sh", "-c", script, "sh", *map(str, words)]
            with (self.folder / f"log-{node}").open("ab") as log:
                self.processes[node] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def log(self, node: int) -> str:
        return (self.folder / f"log-{node}").read_text(encoding="utf-8")

    def logs(self) -> str:
        return "\n".join(f"--- node {node}\n{self.log(node)}" for node in NODES)

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait until something holds."""
        deadline = time.monotonic() + LONGEST
        while not (found := holds()):
            if time.monotonic() > deadline:
                pytest.fail(f"no {what} within {LONGEST} s\n{self.logs()}")
            time.sleep(POLL)
        return found

    def codes(self) -> list[int]:
        """Wait for the end of all containers; return their exit codes."""

        def ended() -> bool:
            return all(process.poll() is not None for process in self.processes.values())

        self.until(ended, "end of all pods")
        return [self.processes[node].returncode for node in NODES]

    def page(self, path: str) -> str | None:
        """Return a page of node 0's report, if it answers."""
        host = str(self.network[10]) if self.network.version == 4 else f"[{self.network[10]}]"
        try:
            with urllib.request.urlopen(f"http://{host}:{PORT}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return None

    def reach(self, step: int) -> dict[str, Any]:
        """Wait until training is beyond a step; return the report."""

        def reached() -> dict[str, Any] | None:
            report = json.loads(self.page("/report") or "{}")
            there = report.get("state") == "Training" and report["progress"]["step"] >= step
            return report if there else None

        return dict(self.until(reached, f"step {step}"))

    def message(self, node: int) -> dict[str, Any]:
        """Return the termination message."""
        return dict(json.loads((self.folder / f"message-{node}").read_text(encoding="utf-8")))

    def marker(self, node: int) -> dict[str, Any] | None:
        """Return what a launcher that is done has left for its next life."""
        path = self.folder / f"scratch-{node}" / "finished.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    @property
    def output(self) -> Path:
        return self.folder / "output-0" / "test"


@pytest.fixture
def pods(
    small_model: Path, small_data: Path, document: Callable[..., dict[str, Any]], tmp_path: Path
) -> Iterator[Callable[..., Pods]]:
    """Make the pods of a job, not yet started: `pods(family=6, task={...})` changes the document."""
    made: list[Pods] = []

    def make(family: int = 4, without_model: int | None = None, **changes: Any) -> Pods:
        training = {"epochs": 3, "maxSteps": STEPS, "evaluateEvery": 50, "checkpointEvery": 20, "learningRate": 1e-3}
        content = document(small_model, small_data, **{"nodes": 2, "training": training} | changes)
        content["metadata"] |= {"namespace": "ml", "uid": "uid-1"}
        content["spec"]["model"] = {"claim": "models", "path": "small"}
        content["spec"]["dataset"] |= {"claim": "data", "path": "."}
        content["spec"]["output"] = {"claim": "results"}
        network = ipaddress.ip_network(NETWORKS[family].format(os.getpid() % 250))
        made.append(Pods(tmp_path, small_data, network, f"cfp{os.getpid() % 99999}"))
        made[-1].connect()
        (tmp_path / "job.yaml").write_text(json.dumps(content), encoding="utf-8")
        for node in NODES:
            if node != without_model:
                (tmp_path / f"models-{node}" / "small").symlink_to(small_model)
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_pods_train_report_finish_and_park(pods: Callable[..., Pods]) -> None:
    job = pods()
    job.start()
    report = job.reach(1)
    assert (report["uid"], report["attempt"], report["restarts"], report["failure"]) == ("uid-1", 1, 0, None)
    assert report["progress"]["totalSteps"] == STEPS
    assert report["layout"]["backend"] == "ccl"
    assert [len(node["layout"]) for node in report["nodes"]] == [1, 1]
    assert "cpufinetune_attempt 1" in (job.page("/metrics") or "")
    assert job.page("/healthz") == "ok\n"
    assert job.codes() == [0, 0], job.logs()

    message = job.message(0)
    assert message == job.marker(0)
    assert (message["schema"], message["uid"], message["code"], message["restarts"]) == (1, "uid-1", 0, 0)
    assert message["progress"]["step"] == STEPS
    assert message["result"]["path"] == "test/model"
    assert message["ranks"] == []
    assert job.message(1) == job.marker(1) == {"schema": 1, "uid": "uid-1", "code": 0, "node": 1}
    assert (job.output / "model" / "model.safetensors").is_file()
    assert json.loads((job.output / ".cpufinetune" / "finished.json").read_text(encoding="utf-8")) == message
    assert not (job.output / "checkpoints").exists()

    (job.folder / "message-0").write_text("", encoding="utf-8")
    job.start()
    job.until(lambda: all(PARKED in job.log(node) for node in NODES), "parked pod")
    assert job.message(0) == message
    assert all(process.poll() is None for process in job.processes.values())
    for process in job.processes.values():
        process.send_signal(signal.SIGTERM)
    assert job.codes() == [0, 0]

    # The pod is recreated elsewhere: only the output is left. It says the same again, and parks.
    shutil.rmtree(job.folder / "scratch-0")
    job.start(0)
    assert job.codes() == [0, 0]
    assert job.message(0) == job.marker(0) == message


@pytest.mark.parametrize(("node", "family"), [(1, 4), (0, 6)], ids=["node 1", "node 0, with IPv6 alone"])
def test_a_launcher_that_is_killed_comes_back_and_counts_as_a_failure(
    pods: Callable[..., Pods], node: int, family: int
) -> None:
    job = pods(family)
    job.start()
    job.reach(21)
    job.processes[node].kill()
    job.processes[node].wait()
    job.start(node)
    assert job.codes() == [0, 0], job.logs()
    message = job.message(0)
    assert (message["code"], message["restarts"], message["attempt"]) == (0, 1, 2)
    assert {"rank": node, "node": f"test-{node}"}.items() <= message["ranks"][0].items()
    assert message["ranks"][0]["lastExit"]["reason"] == "NodeLost"
    report = json.loads((job.output / "report.json").read_text(encoding="utf-8"))
    assert report["history"]["step"] == list(range(1, STEPS + 1))
    assert report["setup"]["resumedFromStep"] in range(20, STEPS, 20)
    assert len(report["attempts"]) == 2


def test_pods_that_are_asked_to_end_leave_a_checkpoint_and_no_marker(pods: Callable[..., Pods]) -> None:
    job = pods()
    job.start()
    job.reach(5)
    for process in job.processes.values():
        process.send_signal(signal.SIGTERM)
    assert job.codes() == [143, 143], job.logs()
    assert [job.marker(node) for node in NODES] == [None, None]
    assert (job.message(0)["code"], job.message(1)["code"]) == (143, 143)
    assert list((job.output / "checkpoints").glob("step-*"))

    job.start()
    assert job.codes() == [0, 0], job.logs()
    assert (job.message(0)["restarts"], job.message(0)["attempt"]) == (0, 2)
    report = json.loads((job.output / "report.json").read_text(encoding="utf-8"))
    assert report["setup"]["resumedFromStep"] >= 5
    assert report["history"]["step"] == list(range(1, STEPS + 1))


def test_data_that_is_wrong_ends_all_pods_for_good(pods: Callable[..., Pods]) -> None:
    job = pods(task={"label": "topic"})
    job.start()
    assert job.codes() == [2, 2], job.logs()
    message = job.message(0)
    assert message == job.marker(0)
    assert message["failure"]["reason"] == "MissingColumn"
    assert "no column 'topic'" in message["failure"]["message"]
    assert (message["code"], message["result"]) == (2, None)
    assert job.message(1) == job.marker(1) == {"schema": 1, "uid": "uid-1", "code": 2, "node": 1}


def test_what_only_another_node_misses_is_node_0s_last_word(pods: Callable[..., Pods]) -> None:
    job = pods(without_model=1)
    job.start()
    assert job.codes() == [2, 2], job.logs()
    failure = job.message(0)["failure"]
    assert failure["reason"] == "ModelNotFound"
    assert failure["message"].startswith("preparation on node 1: ")
    assert job.marker(0) == job.message(0)
