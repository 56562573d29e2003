"""One file fine-tunes on two nodes: the same losses as on one machine, progress on the way, a model at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import probes
import pytest
import yaml
from localcluster.plan import HOME

if TYPE_CHECKING:
    from collections.abc import Callable

    from product import Installed

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("cpufinetune")
LONGEST = 480.0
STEPS = 60
COORDINATOR, REPORT = 29400, 8080


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
    example: Callable[..., dict[str, Any]],
    tmp_path: Path,
    record_figure: Callable[[str], None],
) -> None:
    document = example("reuters-r8", training={"maxSteps": STEPS, "evaluateEvery": 30, "checkpointEvery": 20})
    started = time.monotonic()
    installed.kubectl.apply([document], "--namespace", workspace)
    installed.kubectl.wait("first step", lambda: step(installed, workspace) > 0, 120)
    first = time.monotonic() - started
    columns = installed.kubectl("get", "cft", "--namespace", workspace)
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
    assert (layout["ranks"], layout["cores"], layout["pinned"], layout["backend"]) == (1, 1, True, "gloo")
    assert status["attempt"] == 1
    gone = lambda: not installed.kubectl.get("--namespace", workspace, "pods")["items"]  # noqa: E731
    installed.kubectl.wait("the pods are gone", gone, 90)

    folder = output(installed, workspace, "reuters-r8")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    local = run_here(document, tmp_path)
    assert losses(report) == losses(local)
    # Not only close: the very same weights.
    assert status["result"]["checksum"] == local["result"]["checksum"]
    assert status["result"]["metrics"]["accuracy"] == pytest.approx(local["result"]["metrics"]["accuracy"], abs=0.01)
    assert answers(folder / "model") == "earn"


def assert_strangers_are_kept_out(installed: Installed, namespace: str) -> None:
    """Try the ports of the gang and of the report from a pod beside the job's; progress shows that the operator may."""
    kubectl = installed.kubectl
    target = str(kubectl.get("--namespace", namespace, "pod", "reuters-r8-0")["status"]["podIP"])
    kubectl.apply([probes.pod("stranger")], "--namespace", namespace)
    kubectl.wait("the stranger runs", lambda: probes.running(kubectl, namespace, "stranger"))
    reached = [port for port in (COORDINATOR, REPORT) if probes.reaches(kubectl, namespace, "stranger", target, port)]
    assert reached == []
    # The stranger has a network all the same.
    assert probes.reaches(kubectl, namespace, "stranger", "kubernetes.default.svc", 443)
    kubectl("delete", "pod", "stranger", "--namespace", namespace)


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
