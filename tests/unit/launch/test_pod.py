"""A pod that ends, or waits, before there is a gang: the real command, without a network."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("cpufinetune")
LIMIT = 60.0  # seconds
LOST = {"kind": "NodeLost", "node": 0, "time": 1.0, "reason": "NodeLost", "message": "gone"}


@dataclass(frozen=True)
class Pod:
    """A pod in `folder`."""

    folder: Path

    def write(self, name: str, content: Any) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def read(self, name: str) -> Any:
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def start(self, name: str = "mrpc-0") -> subprocess.Popen[str]:
        files = {"job": "job.yaml", "scratch": "scratch", "output-root": "output", "resolv-conf": "resolv.conf"}
        options = [f"--{option}={self.folder / file}" for option, file in files.items()]
        options += [f"--termination-message={self.folder / 'message'}", f"--host-name={name}", "--report-port=0"]
        command = [str(COMMAND), "pod", *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, name: str = "mrpc-0") -> tuple[int, str]:
        """Return exit code and output."""
        with self.start(name) as process:
            output, _ = process.communicate(timeout=LIMIT)
            return process.returncode, output


def document(**changes: Any) -> dict[str, Any]:
    spec = {
        "model": {"claim": "models"},
        "dataset": {"claim": "data", "files": {"train": "train.csv"}},
        "task": {"text": ["text"], "label": "label"},
        "nodes": 2,
        **changes,
    }
    metadata = {"name": "mrpc", "namespace": "ml", "uid": "u"}
    return {"apiVersion": "cpufinetune.dev/v1alpha1", "kind": "CpuFineTune", "metadata": metadata, "spec": spec}


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    pod = Pod(tmp_path)
    pod.write("job.yaml", document())
    pod.write("resolv.conf", "search ml.svc.cluster.local\n")
    (tmp_path / "scratch").mkdir()
    return pod


@pytest.mark.parametrize(
    ("name", "job", "resolv_conf", "failure"),
    [
        pytest.param("mrpc-0", document(nodes="two"), None, ("InvalidJob", "spec.nodes: must be"), id="a bad document"),
        pytest.param("mrpc-0", "{", None, ("InvalidJob", "job.yaml"), id="no document"),
        pytest.param("mrpc", None, None, ("BadPodName", "'mrpc' does not end in an ordinal"), id="no ordinal"),
        pytest.param("mrpc-0", None, "search corp\n", ("NoClusterDomain", "resolv.conf has no"), id="no cluster"),
        pytest.param(
            "mrpc-0", document(training={"batchSize": 1}), None, ("BatchNotDivisible", "batchSize 1"), id="many ranks"
        ),
        pytest.param(
            "mrpc-0", document(model={"path": "/m"}), None, ("NoClaim", "spec.model.path alone"), id="a local folder"
        ),
    ],
)  # fmt: skip
def test_what_needs_a_human_is_node_0s_last_word(
    pod: Pod, name: str, job: Any, resolv_conf: str | None, failure: tuple[str, str]
) -> None:
    if job is not None:
        pod.write("job.yaml", job)
    if resolv_conf is not None:
        pod.write("resolv.conf", resolv_conf)
    code, output = pod.run(name)
    assert code == 2, output
    message = pod.read("message")
    assert message["failure"]["reason"] == failure[0]
    assert failure[1] in message["failure"]["message"]
    assert (message["schema"], message["code"]) == (1, 2)
    assert pod.read("scratch/finished.json") == message


def test_another_node_leaves_the_explanation_to_node_0(pod: Pod) -> None:
    pod.write("job.yaml", document(nodes="two"))
    code, output = pod.run("mrpc-1")
    assert (code, "spec.nodes" in output) == (2, True)
    assert pod.read("message") == pod.read("scratch/finished.json") == {"schema": 1, "uid": "", "code": 2, "node": 1}


def test_a_complete_job_is_not_run_again(pod: Pod) -> None:
    word = {"schema": 1, "uid": "u", "code": 0, "result": {"path": "model"}}
    pod.write("output/.cpufinetune/finished.json", word)
    code, output = pod.run()
    assert (code, "complete already" in output) == (0, True)
    assert pod.read("message") == pod.read("scratch/finished.json") == word


def test_the_model_of_another_job_is_refused(pod: Pod) -> None:
    pod.write("output/model/config.json", {})
    code, output = pod.run()
    assert code == 2, output
    assert pod.read("message")["failure"]["reason"] == "OutputHasModel"


def test_failures_of_lives_before_use_up_the_retries(pod: Pod) -> None:
    pod.write("job.yaml", document(runPolicy={"backoffLimit": 1}))
    owner, journal = "output/.cpufinetune/owner.json", "output/.cpufinetune/attempts"
    # The first life makes the folder the job's own, and is killed.
    with pod.start() as process:
        while pod.read(owner) is None:
            time.sleep(0.01)
        process.kill()
    pod.write(journal, json.dumps({"attempt": 1, "causes": [LOST], "failures": 1}) + '\n{"life": "began"}\n')
    code, output = pod.run()
    assert code == 1, output
    message = pod.read("message")
    assert (message["code"], message["restarts"], message["failure"]["reason"]) == (1, 2, "NodeLost")
    assert pod.read("scratch/finished.json") == message


@pytest.mark.parametrize("name", ["mrpc-0", "mrpc-1"])
def test_a_pod_that_waits_for_its_peers_ends_when_asked(pod: Pod, name: str) -> None:
    with pod.start(name) as process:
        assert process.stdout is not None
        while "waiting for the own name" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 143
    assert pod.read("message")["code"] == 143
    assert pod.read("scratch/finished.json") is None


def test_a_pod_that_has_ended_parks_until_it_is_removed(pod: Pod) -> None:
    word = {"schema": 1, "uid": "u", "code": 2, "node": 1}
    pod.write("scratch/finished.json", word)
    with pod.start("mrpc-1") as process:
        assert process.stdout is not None
        assert "waiting to be removed" in process.stdout.readline()
        assert pod.read("message") == word
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert pod.read("scratch/finished.json") == word
