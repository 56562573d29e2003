"""One file fine-tunes on two nodes over oneCCL: the weights are those of one machine, also if a pod is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import probes
import pytest
import yaml
from localcluster import cgroups
from localcluster.kubectl import until
from localcluster.plan import HOME

if TYPE_CHECKING:
    from collections.abc import Callable

    from product import Installed

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("cpufinetune")
LONGEST = 480.0
STEPS, CHECKPOINT_EVERY = 60, 20
COORDINATOR, REPORT = 29400, 8080
# A peer without a sign of life is given up after 5 s, which are counted from 1 s after a collective began.
ENDS_SECONDS = 10.0
LISTENING = """
for version in ("", "6"):
    for line in open("/proc/net/tcp" + version).readlines()[1:]:
        address, state = line.split()[1], line.split()[3]
        if state == "0A" and not address.startswith("0100007F"):
            print(int(address.partition(":")[2], 16))
"""
REACHED = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), timeout=3).close()
        print(port)
    except OSError:
        pass
"""

Document = dict[str, Any]


@pytest.fixture(scope="module")
def document(example: Callable[..., Document]) -> Document:
    return example("reuters-r8", training={"maxSteps": STEPS, "evaluateEvery": 30, "checkpointEvery": CHECKPOINT_EVERY})


@pytest.fixture(scope="module")
def local(document: Document, tmp_path_factory: pytest.TempPathFactory) -> Document:
    """Return the report of the same document without a cluster."""
    return run_here(document, tmp_path_factory.mktemp("local"))


def output(installed: Installed, namespace: str, name: str) -> Path:
    """Return the folder behind the output volume of a job's first pod."""
    claim = installed.kubectl.get("--namespace", namespace, "persistentvolumeclaim", f"output-{name}-0")
    volume = installed.kubectl.get("persistentvolume", claim["spec"]["volumeName"])
    folder = Path(volume["spec"]["local"]["path"])
    assert folder.is_relative_to(HOME)
    return folder


def losses(report: dict[str, Any]) -> dict[int, float]:
    return dict(zip(report["history"]["step"], report["history"]["loss"], strict=True))


@pytest.mark.timeout(1500)
def test_reuters_on_two_nodes(
    installed: Installed,
    workspace: str,
    document: Document,
    local: Document,
    record_figure: Callable[[str], None],
) -> None:
    started = time.monotonic()
    installed.kubectl.apply([document], "--namespace", workspace)
    installed.kubectl.wait("first step", lambda: step(installed, workspace) > 0, 120)
    first = time.monotonic() - started
    columns = installed.kubectl("get", "cft", "--namespace", workspace)
    assert_doctor_finds_oneccl(installed, workspace)
    assert_strangers_are_kept_out(installed, workspace)
    job = installed.finish(workspace, "reuters-r8", LONGEST)
    status = job["status"]
    record_figure(
        f"R8 on two nodes: first step seen after {first:.0f} s, complete after {time.monotonic() - started:.0f} s"
    )
    assert status["phase"] == "Succeeded", status
    assert "PHASE" in columns
    assert "Running" in columns
    layout = status["layout"]
    assert (layout["ranks"], layout["cores"], layout["pinned"]) == (1, 1, True)
    assert_over_oneccl(status)
    assert status["attempt"] == 1
    gone = lambda: not installed.kubectl.get("--namespace", workspace, "pods")["items"]  # noqa: E731
    installed.kubectl.wait("the pods are gone", gone, 90)

    folder = output(installed, workspace, "reuters-r8")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert losses(report) == losses(local)
    # Not only close: the very same weights.
    assert status["result"]["checksum"] == local["result"]["checksum"]
    assert status["result"]["metrics"]["accuracy"] == pytest.approx(local["result"]["metrics"]["accuracy"], abs=0.01)
    assert answers(folder / "model") == "earn"


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("lost", "rank", "cause"),
    [("killed", 1, "its launcher is gone"), ("cut off", 0, "rank 1 (reuters-r8-1) gave no sign of life")],
)
def test_a_lost_pod_ends_the_collectives_of_the_others_and_the_job_resumes(
    installed: Installed,
    workspace: str,
    document: Document,
    local: Document,
    *,
    lost: str,
    rank: int,
    cause: str,
    record_figure: Callable[[str], None],
) -> None:
    installed.kubectl.apply([document], "--namespace", workspace)
    installed.kubectl.wait("a checkpoint", lambda: step(installed, workspace) > CHECKPOINT_EVERY, 200)
    survivor = processes(installed, workspace, "reuters-r8-0")["cft-rank-0"]
    # The container's first process: the kernel kills all others with it.
    launcher = processes(installed, workspace, "reuters-r8-1")["cft-node-1"]
    started = time.monotonic()
    if lost == "killed":
        os.kill(launcher, signal.SIGKILL)
    else:
        installed.cluster.cut_pod(workspace, "reuters-r8-1")
    try:
        until("rank 0 ends", lambda: not Path(f"/proc/{survivor}").exists(), ENDS_SECONDS, pause=0.01)
    finally:
        installed.cluster.heal_pods()
    ended = time.monotonic() - started
    status = installed.finish(workspace, "reuters-r8", LONGEST)["status"]
    complete = time.monotonic() - started
    record_figure(
        f"pod {lost}: the other's rank ended after {ended:.1f} s, the job was complete after {complete:.0f} s"
    )
    assert status["phase"] == "Succeeded", status
    assert status["attempt"] == 2
    exits = {one["rank"]: one["lastExit"]["message"] for one in status["ranks"]}
    assert cause in exits[rank], exits
    assert_over_oneccl(status)
    assert status["result"]["checksum"] == local["result"]["checksum"]


def assert_over_oneccl(status: Document) -> None:
    layout = status["layout"]
    assert layout["backend"] == "ccl", layout
    assert "oneCCL 2021" in layout["backendReason"]
    assert "package oneccl-cpu" in layout["backendReason"]


def assert_doctor_finds_oneccl(installed: Installed, namespace: str) -> None:
    """Run the image's health check in a pod that trains."""
    command = ("exec", "--namespace", namespace, "reuters-r8-1", "--", "cpufinetune", "doctor", "--json")
    done = installed.kubectl.attempt(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    oneccl = next(check for check in json.loads(done.stdout)["checks"] if check["name"] == "oneCCL")
    assert oneccl["status"] == "ok", oneccl
    assert oneccl["value"].endswith("backend compiled"), oneccl


def assert_strangers_are_kept_out(installed: Installed, namespace: str) -> None:
    """Try all ports of a job's pod from a pod beside it; progress shows that the operator and the peers may."""
    kubectl = installed.kubectl
    target = str(kubectl.get("--namespace", namespace, "pod", "reuters-r8-0")["status"]["podIP"])
    kubectl.apply([stranger()], "--namespace", namespace)
    kubectl.wait("the stranger runs", lambda: probes.running(kubectl, namespace, "stranger"))
    ports = probes.python(kubectl, namespace, "reuters-r8-0", LISTENING).split()
    # oneCCL's own among them.
    assert {str(COORDINATOR), str(REPORT)} < set(ports)
    assert probes.python(kubectl, namespace, "stranger", REACHED, target, *ports) == ""
    # The stranger has a network all the same.
    assert probes.reaches(kubectl, namespace, "stranger", "kubernetes.default.svc", 443)
    kubectl("delete", "pod", "stranger", "--namespace", namespace)


def stranger() -> Document:
    """Describe a pod on the operator's node: beside ranks, which use their processors to the full, it would starve."""
    tolerated = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    where = {"kubernetes.io/hostname": "system"}
    spec = probes.pod_spec(cpu="250m", nodeSelector=where, tolerations=[tolerated])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec}


def processes(installed: Installed, namespace: str, pod: str) -> dict[str, int]:
    """Return the ids of a pod's processes on this machine, by name."""
    found = installed.kubectl.get("--namespace", namespace, "pod", pod)
    node = installed.cluster.nodes[found["spec"]["nodeName"]].plan
    group = f"{node.cgroup}/kubepods/pod{found['metadata']['uid']}"
    return {Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip(): pid for pid in cgroups.processes(group)}


def step(installed: Installed, namespace: str) -> int:
    return int(installed.job(namespace, "reuters-r8")["status"].get("progress", {}).get("step", 0))


def run_here(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the same document without a cluster; return its report."""
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    claims = [part for name in ("models", "datasets") for part in ("--claim", f"{name}={ROOT / '.cache' / 'demo'}")]
    command = [str(COMMAND), "run", "-f", str(file), "--output", str(folder / "out"), *claims]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=LONGEST)
    return dict(json.loads((folder / "out" / "report.json").read_text(encoding="utf-8")))


def answers(model: Path) -> str:
    """Ask the model, as plain transformers loads it, about an earnings report."""
    from transformers import pipeline  # noqa: PLC0415 - slow to import

    classify = pipeline("text-classification", model=str(model))
    return str(classify("net profit 1.2 mln vs 0.9 mln; shr 34 cts vs 28 cts; revs 12.3 mln")[0]["label"])
