"""Models from a hub: the asked revision, nothing that could hold code, and a clear word when it cannot be had."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Any

import pytest

from cpufinetune.report.events import decode
from cpufinetune.train.settings import RankSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

REPOSITORY = "someone/small"
REVISION = "a" * 40
OTHER_REVISION = "b" * 40
UNSAFE = {
    "pytorch_model.bin": b"\x80\x04would run code",
    "modeling_small.py": b"raise SystemExit",
    "training_args.pt": b"\x80\x04",
}
OK, BAD_INPUT = 0, 2

# The hub's address is read at import, so ranks live in a process of their own: settings in, exit code out.
SERVE_RANKS = """
import os, sys
from cpufinetune.train.rank import main
from cpufinetune.train.settings import RankSettings
for line in sys.stdin:
    file, settings = line.split(" ", 1)
    with open(file, "wb", buffering=0) as events:
        print("ended", int(main(RankSettings.decode(settings), events.fileno())), flush=True)
"""


@dataclass
class Hub:
    """A model hub on loopback with one repository, which remembers what was asked for."""

    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    server: ThreadingHTTPServer = field(init=False)

    def __post_init__(self) -> None:
        """Listen and answer."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, *, with_body: bool) -> None:
                status, headers, body = hub.answer(self.path.partition("?")[0])
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Stay quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        """Go down."""
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        self.asked.append(path)
        listing = [{"type": "file", "oid": oid(body), "size": len(body), "path": n} for n, body in self.files.items()]
        siblings = [{"rfilename": name} for name in self.files]
        about = {"id": REPOSITORY, "modelId": REPOSITORY, "sha": REVISION, "siblings": siblings}
        answers: dict[str, Any] = {
            f"/api/models/{REPOSITORY}/tree/{REVISION}": listing,
            f"/api/models/{REPOSITORY}/revision/{REVISION}": about,
        }
        if path in answers:
            return 200, {"Content-Type": "application/json"}, json.dumps(answers[path]).encode()
        base, _, name = path.rpartition(f"/{REVISION}/")
        if base == f"/{REPOSITORY}/resolve" and name in self.files:
            return 200, {"X-Repo-Commit": REVISION, "ETag": f'"{oid(self.files[name])}"'}, self.files[name]
        code = "RevisionNotFound" if f"/{REPOSITORY}/" in path else "RepoNotFound"
        return 404, {"X-Error-Code": code}, b"{}"


def oid(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:40]


@pytest.fixture(scope="module")
def hub(small_model: Path) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in small_model.iterdir()}
    hub = Hub({**files, **UNSAFE})
    yield hub
    hub.close()


@dataclass
class Ranks:
    """Ranks beside this process, with the hub for theirs."""

    process: subprocess.Popen[str]
    folder: Path
    document: Callable[..., dict[str, Any]]
    data: Path

    def run(self, role: str, name: str, revision: str) -> tuple[int, list[Any]]:
        """Run one rank on a model of the hub; return exit code and events."""
        training = {"maxSteps": 2, "evaluateEvery": "Never"}
        content = self.document(self.data, self.data, training=training)
        content["spec"]["model"] = {"name": name, "revision": revision}
        job, events = self.folder / "job.json", self.folder / "events"
        job.write_text(json.dumps(content), encoding="utf-8")
        scratch, output = str(self.folder / "scratch"), str(self.folder / "output")
        settings = RankSettings(
            role=role,
            job_file=str(job),
            model_root=None,
            data_root=str(self.data),
            scratch=scratch,
            output=output,
        )
        send, answers = pipes(self.process)
        send.write(f"{events} {settings.encode()}\n")
        send.flush()
        code = next(line for line in answers if line.startswith("ended "))
        return int(code.split()[1]), [decode(line) for line in events.read_bytes().splitlines()]

    def left(self) -> list[str]:
        """Return what a refused job must not leave: a model, prepared data, or halves of them."""
        found = [*self.folder.glob("scratch/data-*"), *self.folder.glob("output/*"), *self.folder.rglob("*.writing")]
        return [str(path) for path in found]


def pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


@pytest.fixture(scope="module")
def ranks(
    hub: Hub, small_data: Path, document: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ranks]:
    folder = tmp_path_factory.mktemp("hub")
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment = {**plain, "HF_ENDPOINT": hub.address, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE_RANKS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Ranks(process, folder, document, small_data)
        process.kill()


def words_of(events: list[Any]) -> str:
    (failure,) = [event for event in events if type(event).__name__ == "Failure"]
    assert failure.kind == "Permanent"
    return f"{failure.reason}: {failure.message} ({failure.fix})"


def test_a_model_is_refused_fetched_and_kept_as_the_hub_allows(hub: Hub, ranks: Ranks) -> None:
    code, events = ranks.run("prepare", REPOSITORY, OTHER_REVISION)
    assert code == BAD_INPUT
    assert words_of(events) == (
        f"WrongRevision: model '{REPOSITORY}' at revision {OTHER_REVISION}: no such revision "
        "(copy the commit from the model's page)"
    )
    assert not ranks.left()

    code, events = ranks.run("prepare", "someone/else", REVISION)
    assert code == BAD_INPUT
    assert words_of(events).startswith(f"ModelUnavailable: model 'someone/else' at revision {REVISION} is neither")
    assert not ranks.left()

    hub.asked.clear()
    for role in ("prepare", "train"):
        code, events = ranks.run(role, REPOSITORY, REVISION)
        assert code == OK, events
    assert f"/{REPOSITORY}/resolve/{REVISION}/model.safetensors" in hub.asked
    assert not [path for path in hub.asked if path.rpartition("/")[2] in UNSAFE]
    assert (ranks.folder / "output" / "model" / "model.safetensors").is_file()

    hub.close()
    code, events = ranks.run("prepare", REPOSITORY, REVISION)
    assert code == OK, "a revision that was fetched needs no hub"

    code, events = ranks.run("prepare", REPOSITORY, OTHER_REVISION)
    assert code == BAD_INPUT
    said = words_of(events)
    assert said.startswith(f"ModelUnavailable: model '{REPOSITORY}' at revision {OTHER_REVISION} is neither cached nor")
    assert "check name, revision and the connection to the hub" in said
