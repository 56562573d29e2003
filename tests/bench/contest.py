"""Runs of both contestants, each in processes of its own, and what they are compared by."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
COMMAND = Path(sys.executable).with_name("cpufinetune")
# Both import and allocate in their first steps.
WARM_UP = 5
# What makes a CPU with AVX-512 behave like one with AVX2 only, for both contestants.
AVX2_ONLY = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


@dataclass(frozen=True)
class Case:
    """One training both do: same model, data, batch, steps, rate and threads."""

    name: str
    model: Path
    data: Path
    text: tuple[str, ...]
    steps: int
    batch_size: int = 32
    max_length: int = 128
    learning_rate: float = 1e-4
    threads: int = 2
    test: bool = False
    mean_tokens: float = 0.0
    environment: tuple[tuple[str, str], ...] = ()

    def short(self, steps: int) -> Case:
        """The same without the final test, for another look at speed."""
        return replace(self, steps=steps, test=False)


@dataclass(frozen=True)
class Outcome:
    """Samples a second after the warm-up, and test accuracy if asked for."""

    samples_per_second: float
    accuracy: float | None


def peer(case: Case) -> Outcome:
    """Run the peer."""
    options = {
        "model": str(case.model),
        "data": str(case.data),
        "text": case.text,
        "steps": case.steps,
        "batchSize": case.batch_size,
        "maxLength": case.max_length,
        "learningRate": case.learning_rate,
        "threads": case.threads,
        "test": case.test,
    }
    threads = {"OMP_NUM_THREADS": str(case.threads)}
    found = subprocess.run(
        [sys.executable, str(HERE / "peer_trainer.py"), json.dumps(options)],
        env={**os.environ, **threads, **dict(case.environment)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    result = json.loads(
        next(line for line in found.stdout.splitlines() if line.startswith("RESULT ")).partition(" ")[2]
    )
    return Outcome(rate(result["times"], case.batch_size), result["accuracy"])


def rate(times: list[float], batch_size: int) -> float:
    """Samples a second between the end of the warm-up and the last step."""
    return (len(times) - WARM_UP) * batch_size / (times[-1] - times[WARM_UP - 1])


def ours(case: Case, precision: str, *, nodes: int = 1) -> Outcome:
    """Run this project through its command line, `nodes` ranks of `threads` cores each."""
    files = {"train": "train.csv", **({"test": "test.csv"} if case.test else {})}
    training = {
        "maxSteps": case.steps,
        "epochs": 100,
        "batchSize": case.batch_size,
        "learningRate": case.learning_rate,
        "warmupRatio": 0,
        "weightDecay": 0,
        "precision": precision,
        "evaluateEvery": "Never",
        "checkpointEvery": 1_000_000,
    }
    spec: dict[str, Any] = {
        "model": {"path": str(case.model)},
        "dataset": {"path": str(case.data), "files": files, "validationFraction": 0.01},
        "task": {"text": list(case.text), "label": "label", "maxLength": case.max_length},
        "training": training,
        "nodes": nodes,
        "node": {"ranks": 1, "cpu": case.threads},
    }
    document = {"apiVersion": "cpufinetune.dev/v1alpha1", "kind": "CpuFineTune", "metadata": {"name": "bench"}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(yaml.safe_dump({**document, "spec": spec}), encoding="utf-8")
        command = [str(COMMAND), "run", "-f", str(folder / "job.yaml"), "-o", str(folder / "output")]
        subprocess.run(
            [*command, "--events", str(folder / "events")],
            env={**os.environ, **dict(case.environment)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        report = json.loads((folder / "output" / "report.json").read_text(encoding="utf-8"))
        lines = (folder / "events").read_text(encoding="utf-8").splitlines()
    steps = [event for event in map(json.loads, lines) if event["event"] == "Step"]
    times = [event["time"] for event in steps if event["rank"] == 0]
    tokens = sum(event["tokens"] for event in steps if event["step"] > WARM_UP)
    accuracy = report["result"]["metrics"]["accuracy"] if case.test else None
    # Our batches differ in length and a few of them are no fair sample: tokens a second, at the corpus' mean length.
    return Outcome(tokens / (times[-1] - times[WARM_UP - 1]) / case.mean_tokens, accuracy)


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
