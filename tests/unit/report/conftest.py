from __future__ import annotations

from typing import Any

import pytest

from cpufinetune.report import (
    Checkpointed,
    Evaluation,
    Event,
    Phase,
    PhaseName,
    Progress,
    Resources,
    Result,
    Setup,
    Step,
)

EPOCH = 1_700_000_000.0


def setup(**changes: Any) -> Setup:
    values: dict[str, Any] = {
        "rank": 0,
        "time": EPOCH,
        "world_size": 2,
        "total_steps": 100,
        "backend": "gloo",
        "backend_reason": "no other is installed",
        "precision": "Float32",
        "precision_reason": "no AMX",
        "parameters": 1000,
        "trainable_parameters": 10,
        "model": "distilbert-base-uncased",
        "resumed_from_step": None,
        "train_samples": 3200,
        "validation_samples": 400,
        "test_samples": 0,
        "labels": ("no", "yes"),
        "extra": {"buckets": [1, 2]},
    }
    return Setup(**values | changes)


def step(number: int, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "rank": 0,
        "time": EPOCH,
        "step": number,
        "epoch": number / 100,
        "loss": 1.0,
        "learning_rate": 1e-5,
        "grad_norm": 1.0,
        "samples": 16,
        "tokens": 900,
        "padded_tokens": 1000,
        "seconds": 1.0,
        "communication_seconds": 0.25,
        "cpu_seconds": 4.0,
    }
    return Step(**values | changes)


def evaluation(number: int, **changes: Any) -> Evaluation:
    values: dict[str, Any] = {
        "rank": 0,
        "time": EPOCH,
        "step": number,
        "split": "validation",
        "metrics": {"loss": 0.5, "accuracy": 0.75},
        "samples": 400,
        "seconds": 10.0,
        "best": True,
    }
    return Evaluation(**values | changes)


class Run:
    """A made-up run: a progress model, and a clock that the ranks' events move."""

    def __init__(self, *, ranks: int = 2) -> None:
        self.ranks = ranks
        self.now = EPOCH
        self.progress = Progress(clock=lambda: self.now)

    def apply(self, *events: Event) -> None:
        for event in events:
            self.progress.apply(event)

    share = staticmethod(step)

    def phase(self, name: PhaseName, *, attempt: int = 1) -> None:
        self.apply(*(Phase(rank=rank, name=name, attempt=attempt, time=self.now) for rank in range(self.ranks)))

    def begin(self, *, attempt: int = 1, **changes: Any) -> None:
        self.phase("Start", attempt=attempt)
        self.apply(setup(**{"time": self.now, "world_size": self.ranks} | changes))
        self.phase("Train", attempt=attempt)

    def train(self, first: int, last: int, **changes: Any) -> None:
        for number in range(first, last + 1):
            self.now += changes.get("seconds", 1.0)
            self.apply(
                *(step(number, **{"rank": rank, "time": self.now} | changes) for rank in reversed(range(self.ranks)))
            )

    def evaluate(self, number: int, **changes: Any) -> None:
        self.now += changes.get("seconds", 10.0)
        self.apply(evaluation(number, **{"time": self.now} | changes))

    def finish(self, number: int) -> None:
        self.apply(
            Checkpointed(rank=0, time=self.now, step=number, path="/out/checkpoints/1", bytes=4096, seconds=0.5),
            Result(
                rank=0,
                time=self.now,
                path="/out/model",
                metrics={"loss": 0.4, "accuracy": 0.8125},
                checksum="sha256:00",
                bytes=268_435_456,
                steps=number,
            ),
            *(Resources(rank=rank, time=self.now, peak_rss_bytes=300 + rank, rss_bytes=200) for rank in range(2)),
        )
        self.phase("Done")

    @property
    def state(self) -> dict[str, Any]:
        return self.progress.snapshot()


@pytest.fixture
def run() -> Run:
    return Run()
