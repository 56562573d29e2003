"""Real data, models and runs for the trainer's tests: Reuters R8, MiniLM, and a two-layer encoder made on the spot."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DEMO = REPOSITORY / ".cache" / "demo"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
COMMAND = Path(sys.executable).with_name("cpufinetune")
LONGEST_RUN = 240.0  # seconds
POLL = 0.005

# They are of what only .venv-intel has, and no test passes by being skipped.
collect_ignore = [] if importlib.util.find_spec("intel_extension_for_pytorch") else ["intel"]

Document = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def demo() -> Path:
    """The prepared demo: `minilm/` and `reuters-r8/`."""
    if not (DEMO / "minilm" / "model.safetensors").is_file():
        pytest.fail("the demo's model and data are missing; run `make demo-data`")
    return DEMO


@pytest.fixture(scope="session")
def small_model(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer BERT of width 128 with the demo's tokenizer and random weights."""
    import torch  # noqa: PLC0415 - slow to import
    from transformers import BertConfig, BertModel  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("models") / "small"
    torch.manual_seed(7)
    size: dict[str, Any] = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    BertModel(BertConfig(vocab_size=30522, intermediate_size=512, **size)).save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copyfile(demo / "minilm" / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def small_data(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 1,000 training and 200 test documents of R8."""
    folder = tmp_path_factory.mktemp("data")
    for split, count in (("train", 1000), ("test", 200)):
        with (demo / "reuters-r8" / f"{split}.csv").open(encoding="utf-8", newline="") as source:
            rows = list(csv.reader(source))
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as target:
            csv.writer(target).writerows(rows[: count + 1])
    return folder


@pytest.fixture(scope="session")
def document() -> Document:
    """Build a job document: `document(model, data, training={"seed": 1})` merges changes into its sections."""

    def build(model: Path, data: Path, **changes: Any) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "model": {"path": str(model)},
            "dataset": {"path": str(data), "files": {"train": "train.csv", "test": "test.csv"}},
            "task": {"text": ["text"], "label": "label", "maxLength": 64},
            # Without a trial of Intel's extension, where it is installed: that is a test of its own.
            "training": {"epochs": 1, "batchSize": 16, "learningRate": 5e-4, "precision": "Float32", "intel": "Off"},
            "output": {"ephemeral": True},
        }
        for section, values in changes.items():
            spec[section] = {**spec.get(section, {}), **values} if isinstance(values, dict) else values
        metadata = {"name": "test"}
        return {"apiVersion": "cpufinetune.dev/v1alpha1", "kind": "CpuFineTune", "metadata": metadata, "spec": spec}

    return build


def pids_named(name: str, session: int) -> list[int]:
    """Return the processes called `name` that descend from the process `session`."""
    parents: dict[int, int] = {}
    named = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text(encoding="utf-8")
        except OSError:
            continue
        comm, rest = text[text.index("(") + 1 :].rsplit(")", 1)
        parents[int(entry.name)] = int(rest.split()[1])
        if comm == name:
            named.append(int(entry.name))

    def descends(pid: int) -> bool:
        while pid > 1:
            if pid == session:
                return True
            pid = parents.get(pid, 0)
        return False

    return [pid for pid in named if descends(pid)]


@dataclass
class Run:
    """A `cpufinetune run` in a process of its own, with its events as they come."""

    folder: Path
    process: subprocess.Popen[str]
    _taken: int = 0

    @property
    def output(self) -> Path:
        """The run's output folder."""
        return self.folder / "output"

    @property
    def log(self) -> str:
        """What the command has printed."""
        return (self.folder / "log").read_text(encoding="utf-8")

    @property
    def report(self) -> dict[str, Any]:
        """The report it left."""
        return dict(json.loads((self.output / "report.json").read_text(encoding="utf-8")))

    def events(self) -> list[dict[str, Any]]:
        """Read all events so far."""
        try:
            text = (self.folder / "events").read_text(encoding="utf-8")
        except OSError:
            return []
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Wait for the next event that is wanted; events are looked at once."""
        deadline = time.monotonic() + LONGEST_RUN
        while time.monotonic() < deadline:
            events = self.events()
            while self._taken < len(events):
                event = events[self._taken]
                self._taken += 1
                if wanted(event):
                    return event
            if self.process.poll() is not None:
                pytest.fail(f"the run ended with {self.process.returncode} before {what}:\n{self.log}")
            time.sleep(POLL)
        pytest.fail(f"no {what} within {LONGEST_RUN} s:\n{self.log}")

    def pid(self, name: str) -> int:
        """Return the id of the run's process of that name, for example `cft-rank-0`."""
        (found,) = pids_named(name, self.process.pid)
        return found

    def kill(self, rank: int) -> float:
        """SIGKILL a rank; return when, in seconds since the epoch."""
        pid = self.pid(f"cft-rank-{rank}")
        now = time.time()
        os.kill(pid, signal.SIGKILL)
        return now

    def end(self, seconds: float = LONGEST_RUN) -> int:
        """Wait for the end; return the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end:\n{self.log}")

    def losses(self) -> dict[int, float]:
        """Return the loss of each step, the last one told where a step was repeated."""
        return {
            event["step"]: event["loss"] for event in self.events() if event["event"] == "Step" and not event["rank"]
        }


Start = Callable[..., Run]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start `cpufinetune run` on a document, in a folder of its `name`; what still runs ends with the module."""
    runs: list[Run] = []
    base = tmp_path_factory.mktemp("runs")

    def begin(content: dict[str, Any], *arguments: str, name: str = "run") -> Run:
        folder = base / name
        folder.mkdir(exist_ok=True)
        file = folder / "job.yaml"
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        command = [
            str(COMMAND),
            "run",
            "-f",
            str(file),
            "-o",
            str(folder / "output"),
            "--events",
            str(folder / "events"),
        ]
        with (folder / "log").open("a", encoding="utf-8") as log:
            process = subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT, text=True)
        runs.append(Run(folder, process))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


@dataclass(frozen=True)
class Outcome:
    """How preparation and training by one rank in this process ended."""

    code: int
    events: list[Any]
    output: Path
    scratch: Path

    def all(self, name: str) -> list[Any]:
        """Return the events of a type."""
        return [event for event in self.events if type(event).__name__ == name]

    def one(self, name: str) -> Any:
        """Return the only event of a type."""
        (event,) = self.all(name)
        return event

    def losses(self) -> list[float]:
        """Return the loss of each step."""
        return [event.loss for event in self.all("Step")]

    def half_written(self) -> list[str]:
        """Name what nobody may find after a failure: half a model, half a checkpoint, half of the prepared data."""
        paths = [*self.output.rglob("*"), *self.scratch.rglob("*")]
        return [str(path) for path in paths if "writing" in path.name or path == self.output / "model"]


TrainHere = Callable[..., Outcome]


@pytest.fixture(scope="session")
def train_here() -> TrainHere:
    """Prepare and train in this process: `train_here(document, folder)`; other arguments are the rank's settings."""
    from cpufinetune.report.events import decode  # noqa: PLC0415 - what imports torch is imported late
    from cpufinetune.train import rank  # noqa: PLC0415
    from cpufinetune.train.settings import RankSettings  # noqa: PLC0415

    def run(content: dict[str, Any], folder: Path, **changes: Any) -> Outcome:
        folder.mkdir(parents=True, exist_ok=True)
        job, events = folder / "job.json", folder / "events"
        job.write_text(json.dumps(content), encoding="utf-8")
        values = {
            "job_file": str(job),
            "model_root": content["spec"]["model"].get("path"),
            "data_root": content["spec"]["dataset"].get("path"),
            "scratch": str(folder / "scratch"),
            "output": str(folder / "output"),
            **changes,
        }
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            # The test runner has a fault handler of its own.
            with events.open("wb", buffering=0) as stream, mock.patch("faulthandler.enable"):
                code = rank.main(RankSettings(role="prepare", **values), stream.fileno())
                code = code or rank.main(RankSettings(role="train", **values), stream.fileno())
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        lines = events.read_bytes().splitlines()
        return Outcome(int(code), [decode(line) for line in lines], Path(values["output"]), Path(values["scratch"]))

    return run
