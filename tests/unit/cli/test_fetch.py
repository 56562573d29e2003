"""Fetching from a hub on loopback by the real command, and what is worth another try."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyarrow import parquet
from safetensors.numpy import save

from cpufinetune.errors import AttemptError, JobError
from cpufinetune.train import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = Path(sys.executable).with_name("cpufinetune")
MODEL, DATA, GATED = "someone/model", "someone/words", "someone/gated"
REVISION, OTHER = "a" * 40, "b" * 40
CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: train.csv}
  - {split: validation, path: validation.csv}
dataset_info:
  features:
  - {name: text, dtype: string}
  - name: label
    dtype: {class_label: {names: {'0': bad, '1': good}}}
---
"""
MODEL_FILES = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}",
    "model.safetensors": save({"weight": np.zeros(4, dtype=np.float32)}),
    "pytorch_model.bin": b"\x80\x04would run code",
    "modeling.py": b"raise SystemExit",
    "onnx/config.json": b"{}",
}
DATA_FILES = {
    "README.md": CARD.encode(),
    "train.csv": b"text,label\nfine,1\nawful,0\n",
    "validation.csv": b"text,label\nokay,1\n",
}


def oid(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:40]


@dataclass
class Hub:
    """A hub with a model and a dataset; it remembers what was asked for, and by whom."""

    asked: list[tuple[str, str | None]] = field(default_factory=list)
    failures: int = 0

    def answer(self, path: str, token: str | None) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        self.asked.append((path, token))
        if self.failures:
            self.failures -= 1
            return 503, {}, b"{}"
        if GATED in path:
            return 401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"}, b"{}"
        for name, kind, place, files in (
            (MODEL, "models", "", MODEL_FILES),
            (DATA, "datasets", "/datasets", DATA_FILES),
        ):
            if path == f"/api/{kind}/{name}/revision/{REVISION}":
                about = {"id": name, "sha": REVISION, "siblings": [{"rfilename": file} for file in files]}
                return 200, {"Content-Type": "application/json"}, json.dumps(about).encode()
            if path.startswith(f"/api/{kind}/{name}/tree/{REVISION}"):
                listed = [{"type": "file", "oid": oid(b), "size": len(b), "path": file} for file, b in files.items()]
                return 200, {"Content-Type": "application/json"}, json.dumps(listed).encode()
            base, _, file = path.rpartition(f"/{REVISION}/")
            if base == f"{place}/{name}/resolve" and file in files:
                return 200, {"X-Repo-Commit": REVISION, "ETag": f'"{oid(files[file])}"'}, files[file]
        known = MODEL in path or DATA in path
        code = "RepoNotFound" if not known else "EntryNotFound" if REVISION in path else "RevisionNotFound"
        return 404, {"X-Error-Code": code}, b"{}"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Any]:
    """A running hub, and `fetch(spec)`, which returns the exit code and what was printed."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            status, headers, body = hub.answer(self.path.partition("?")[0], self.headers.get("authorization"))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment = {**plain, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
    files = {"job": "job.json", "scratch": "scratch", "termination-message": "message", "token-file": "token"}
    options = [f"--{option}={tmp_path / file}" for option, file in files.items()]

    def run(spec: dict[str, Any], token: str = "") -> tuple[int, str]:
        task = {"text": ["text"], "label": "label"}
        metadata = {"name": "mrpc", "uid": "u"}
        content = {"apiVersion": "cpufinetune.dev/v1alpha1", "kind": "CpuFineTune", "metadata": metadata}
        (tmp_path / "job.json").write_text(json.dumps({**content, "spec": {"task": task, **spec}}), encoding="utf-8")
        if token:
            (tmp_path / "token").write_text(f"{token}\n", encoding="utf-8")
        command = [str(COMMAND), "fetch", *options, "--host-name=mrpc-1"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stdout + done.stderr

    yield SimpleNamespace(hub=hub, fetch=run, folder=tmp_path)
    server.shutdown()
    server.server_close()


def spec(model: str = MODEL, data: str = DATA, revision: str = REVISION) -> dict[str, Any]:
    return {"model": {"name": model, "revision": revision}, "dataset": {"name": data, "revision": revision}}


def test_model_and_dataset_become_files_once_and_nothing_that_could_hold_code(hub: Any) -> None:
    hub.hub.failures = 1
    code, output = hub.fetch(spec(), "secret")
    assert code == 0, output
    scratch = hub.folder / "scratch"
    found = {str(path.relative_to(scratch)) for path in scratch.rglob("*") if path.is_file()}
    assert found == {
        "fetched.json", "data/train.parquet", "data/validation.parquet",
        *(f"model/{name}" for name in ("config.json", "tokenizer.json", "model.safetensors")),
    }  # fmt: skip
    rows = {"text": ["fine", "awful"], "label": ["good", "bad"]}
    assert parquet.read_table(scratch / "data" / "train.parquet").to_pydict() == rows
    assert "Bearer secret" in {token for _, token in hub.hub.asked}
    assert not [path for path in scratch.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]
    assert "secret" not in output

    hub.hub.asked.clear()
    assert hub.fetch(spec()) == (0, "everything is here already\n")
    assert hub.hub.asked == []


@pytest.mark.parametrize(
    ("asked", "reason", "text"),
    [
        (spec(revision=OTHER), "WrongRevision", "no such revision"),
        (spec(model="someone/else"), "ModelUnavailable", "someone/else"),
        (spec(model=GATED), "HubRefused", "HTTP 401"),
        ({"model": {"claim": "m"}, "dataset": spec(data="x/y")["dataset"]}, "DatasetUnavailable", "x/y"),
        ({"model": {"claim": "m"}, "dataset": spec(data=GATED)["dataset"]}, "DatasetUnavailable", "gated"),
        (
            {"model": {"claim": "m"}, "dataset": spec()["dataset"], "task": {"text": ["txt"], "label": "label"}},
            "MissingColumn", "no column 'txt'",
        ),
    ],
    ids=["another revision", "no such model", "a gated model", "no such dataset", "a gated dataset", "no such column"],
)  # fmt: skip
def test_what_the_hub_refuses_ends_with_the_reason(hub: Any, asked: dict[str, Any], reason: str, text: str) -> None:
    code, output = hub.fetch(asked)
    assert code == 2, output
    message = json.loads((hub.folder / "message").read_text(encoding="utf-8"))
    assert (message["schema"], message["uid"], message["code"], message["node"]) == (1, "u", 2, 1)
    assert message["failure"]["reason"] == reason
    assert text in message["failure"]["message"]
    assert ("spec.hubTokenSecret" in message["failure"]["fix"]) is (reason != "MissingColumn")


class Answered(OSError):  # noqa: N818 - says what happened
    """An error of the hub's client."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.response = SimpleNamespace(status_code=code)


class ConnectTimeout(Exception):  # noqa: N818 - named like the HTTP client's
    """What a client of its own kind raises."""


class TransportError(ConnectTimeout):
    """Its base."""


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        *((Answered(code), True) for code in (401, 403, 404, 410)),
        *((Answered(code), False) for code in (408, 429, 500, 502, 503)),
        (caused(JobError("ModelUnavailable", ""), Answered(404)), True),
        (caused(JobError("ModelUnavailable", ""), Answered(503)), False),
        (caused(JobError("ModelUnavailable", ""), ConnectionResetError()), False),
        (caused(JobError("ModelUnavailable", ""), TransportError()), False),
        (caused(JobError("DatasetUnavailable", ""), ValueError("unknown split")), True),
        (JobError("PickledWeights", ""), True),
        (TransportError(), False),
        (RuntimeError("Dataset scripts are no longer supported"), True),
        (OSError(errno.ENOSPC, "full"), True),
    ],
)
def test_only_what_may_go_away_is_tried_again(error: Exception, *, lasts: bool) -> None:
    assert fetch.lasting(error) is lasts


def retry(*errors: Exception) -> tuple[list[float], list[str], int]:
    """Do something that fails so; return pauses, lines, and how often it was done."""
    pauses: list[float] = []
    lines: list[str] = []
    left, calls = list(errors), []

    def act() -> None:
        calls.append(1)
        if left:
            raise left.pop(0)

    fetch.Retry(lines.append, pauses.append)(act)
    return pauses, lines, len(calls)


def test_pauses_grow_from_try_to_try() -> None:
    pauses, lines, calls = retry(OSError("no route"), Answered(503))
    assert (pauses, calls) == ([1.0, 2.0], 3)
    assert lines[0] == "no route; trying again in 1 s"


def test_a_network_that_stays_away_is_left_to_the_next_life() -> None:
    with pytest.raises(AttemptError, match="no route") as caught:
        retry(*[OSError("no route")] * 99)
    assert caught.value.reason == "HubUnreachable"


def test_a_full_volume_is_called_one() -> None:
    with pytest.raises(JobError, match="scratch volume is full"):
        retry(OSError(errno.ENOSPC, "No space left on device"))


def test_classes_that_are_partly_unknown_become_text(tmp_path: Path) -> None:
    fetch.write_parquet(tmp_path / "x.parquet", {"text": ["a", "b", "c"], "label": ["good", -1, None]})
    found = parquet.read_table(tmp_path / "x.parquet").to_pydict()
    assert found == {"text": ["a", "b", "c"], "label": ["good", "-1", None]}
