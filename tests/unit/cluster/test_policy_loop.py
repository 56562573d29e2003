"""The enforcer's shell, with a script in place of kubectl and real namespaces where rules go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import netlab
import pytest
from localcluster.kubectl import Kubectl
from localcluster.network import run
from localcluster.plan import Plan
from localcluster.policy import READY, Changes, Enforcer, enforcer, hold, is_held
from localcluster.policy_rules import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Object = dict[str, Any]

# Lists what is in a file; as a watch, tells the lines that are in another, and ends or stays.
SCRIPT = """\
#!/bin/sh
here=$(dirname "$0")
case "$*" in
*--watch*) echo "$*" >> "$here/watches"; cat "$here/events"; [ -e "$here/end" ] || exec sleep 60;;
*) cat "$here/list" || exit 1;;
esac
"""
HOLDER = """\
import pathlib, sys
from localcluster.policy import hold
held = hold(pathlib.Path(sys.argv[1]))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture(name="kubectl")
def fixture_kubectl(tmp_path: Path) -> Kubectl:
    script = tmp_path / "kubectl"
    script.write_text(SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    (tmp_path / "events").touch()
    return Kubectl(script, tmp_path / "kubeconfig")


@pytest.fixture(name="changes")
def fixture_changes(kubectl: Kubectl) -> Iterator[Changes]:
    changes = Changes(kubectl)
    yield changes
    changes.close()


def give(folder: Path, *items: Object) -> None:
    (folder / "list").write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")


def pod(name: str, node: str, **spec: Any) -> Object:
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "jobs"},
        "spec": {"nodeName": node, "containers": [], **spec},
        "status": {"podIP": "10.64.11.5"},
    }


def closed() -> Object:
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    return {"kind": "NetworkPolicy", "metadata": {"name": "closed", "namespace": "jobs"}, "spec": spec}


def test_a_round_gives_nodes_what_kubectl_lists_and_says_what_went_wrong(kubectl: Kubectl, tmp_path: Path) -> None:
    with netlab.nodes() as lab:
        enforcing = Enforcer(lab.cluster, kubectl)
        here = lab.namespace("node-a")
        assert enforcing.attempt().startswith("kubectl get networkpolicies,pods,namespaces --all-namespaces")

        give(tmp_path, pod("web", "node-a"), closed())
        assert enforcing.attempt() == ""
        before = run("nft", "list", "table", "inet", TABLE, namespace=here)
        assert "10.64.11.5 : jump ingress-10.64.11.5" in before

        give(tmp_path, pod("web", "node-a", hostNetwork=True), closed())
        assert enforcing.attempt().startswith("NetworkPolicy jobs/closed: pod jobs/web is on its node's network")
        (tmp_path / "list").write_text("{", encoding="utf-8")
        assert "line 1" in enforcing.attempt()
        assert run("nft", "list", "table", "inet", TABLE, namespace=here) == before

        give(tmp_path, pod("lost", "node-z"), pod("web", "node-a"))
        assert enforcing.attempt().startswith("node-z: ")
        assert "jump" not in run("nft", "list", "table", "inet", TABLE, namespace=here)


def test_a_change_ends_the_wait(changes: Changes, tmp_path: Path) -> None:
    (tmp_path / "events").write_text("pod/web\n", encoding="utf-8")
    changes.watch()
    assert changes.wait(20)
    while changes.wait(0.5):
        pass
    changes.watch()
    watches = (tmp_path / "watches").read_text(encoding="utf-8").splitlines()
    assert sorted(line.split()[2] for line in watches) == ["namespaces", "networkpolicies", "pods"]


def test_watches_that_end_are_started_again(changes: Changes, tmp_path: Path) -> None:
    (tmp_path / "end").touch()
    changes.watch()
    assert not changes.wait(0)
    for process in changes.watches.values():
        process.wait(20)
    (tmp_path / "end").unlink()
    (tmp_path / "events").write_text("pod/web\n", encoding="utf-8")
    changes.watch()
    assert changes.wait(20)
    assert all(process.poll() is None for process in changes.watches.values())


def test_the_component_is_ready_while_a_process_holds_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localcluster.plan.HOME", tmp_path)
    component = enforcer(Plan("c", 64), tmp_path)
    (tmp_path / "c").mkdir()
    assert not component.ready()
    argv = [sys.executable, "-P", "-c", HOLDER, str(tmp_path / "c" / READY)]
    environment = {**os.environ, **component.environment}
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert component.ready()
        process.kill()
        # A process that nobody has waited for yet is dead nevertheless.
        deadline = time.monotonic() + 20
        while component.ready():
            assert time.monotonic() < deadline
    with hold(tmp_path / "mine"):
        assert is_held(tmp_path / "mine")
    assert not is_held(tmp_path / "mine")
