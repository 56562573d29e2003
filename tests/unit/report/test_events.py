from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from cpufinetune.report import (
    BadEvent,
    Checkpointed,
    Evaluation,
    Event,
    Failure,
    Heartbeat,
    Phase,
    Resources,
    Result,
    Setup,
    Step,
    decode,
    encode,
)

SETUP = Setup(
    rank=0,
    time=1.5,
    world_size=2,
    total_steps=10,
    backend="gloo",
    backend_reason="no other is installed",
    precision="Float32",
    precision_reason="no AMX",
    parameters=1000,
    trainable_parameters=10,
    model="bert",
    resumed_from_step=None,
    train_samples=3,
    validation_samples=2,
    test_samples=1,
    labels=("no", "sí\n"),
    extra={"buckets": [1, {"deep": None}], "seed": 3},
)
STEP = Step(
    rank=1,
    time=2.5,
    step=3,
    epoch=0.25,
    loss=0.5,
    learning_rate=1e-5,
    grad_norm=1.25,
    samples=4,
    tokens=90,
    padded_tokens=100,
    seconds=0.5,
    communication_seconds=0.125,
    cpu_seconds=2.0,
)
METRICS = {"accuracy": 0.75, "loss": 0.5}
EVENTS: list[Event] = [
    Phase(rank=0, name="Train", attempt=2, time=1.0),
    Heartbeat(rank=3, time=1.0),
    SETUP,
    dataclasses.replace(SETUP, resumed_from_step=7, labels=(), extra={}),
    STEP,
    Evaluation(rank=0, time=1.0, step=3, split="test", metrics=METRICS, samples=9, seconds=0.5, best=False),
    Checkpointed(rank=0, time=1.0, step=3, path="/out/3", bytes=12, seconds=0.5),
    Result(rank=0, time=1.0, path="/out/model", metrics=METRICS, checksum="sha256:0", bytes=12, steps=3),
    Failure(rank=1, time=1.0, kind="Permanent", reason="MissingColumn", message="no column 'x'", fix="name another"),
    Resources(rank=1, time=1.0, peak_rss_bytes=2**40, rss_bytes=1),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was_sent(event: Event) -> None:
    assert decode(encode(event)) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_one_line(event: Event) -> None:
    line = encode(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


def test_the_fields_are_in_camel_case_behind_the_name_of_the_event() -> None:
    document = json.loads(encode(STEP))
    assert document["event"] == "Step"
    assert {"paddedTokens", "learningRate", "communicationSeconds"} <= document.keys()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_hold_is_sent_as_null_and_comes_back_as_nan(value: float) -> None:
    line = encode(dataclasses.replace(STEP, loss=value))
    assert json.loads(line)["loss"] is None
    received = decode(line)
    assert isinstance(received, Step)
    assert math.isnan(received.loss)


def test_a_metric_that_is_nan_survives() -> None:
    event = Evaluation(rank=0, time=1, step=1, split="test", metrics={"f1": math.nan}, samples=1, seconds=1, best=False)
    received = decode(encode(event))
    assert isinstance(received, Evaluation)
    assert math.isnan(received.metrics["f1"])


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert decode('{"event": "Heartbeat", "rank": 1, "time": 2, "mood": {"good": true}}') == Heartbeat(rank=1, time=2.0)


def test_fields_with_a_default_may_be_missing() -> None:
    document = json.loads(encode(SETUP))
    del document["labels"], document["extra"]
    assert decode(json.dumps(document)) == dataclasses.replace(SETUP, labels=(), extra={})


HEARTBEAT: dict[str, Any] = {"event": "Heartbeat", "rank": 1, "time": 2.0}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "not JSON"),
        (b"Traceback (most recent call last):", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not a JSON object but list"),
        (b"{}", "unknown event None"),
        (b'{"event": "Party"}', "unknown event 'Party'"),
        (b'{"event": ["Step"]}', "unknown event"),
        (json.dumps({"event": "Heartbeat", "rank": 1}), "Heartbeat has no time"),
        (json.dumps(HEARTBEAT | {"rank": "1"}), "Heartbeat.rank: expected int, not '1'"),
        (json.dumps(HEARTBEAT | {"rank": True}), "Heartbeat.rank: expected int, not True"),
        (json.dumps(HEARTBEAT | {"time": None}), "Heartbeat.time: expected a finite number"),
        (json.dumps(HEARTBEAT | {"time": "now"}), "Heartbeat.time: expected a number"),
        (json.dumps(HEARTBEAT | {"time": 10**400}), "the number is too large"),
        ('{"event": "Phase", "rank": 0, "name": "Rest", "attempt": 1, "time": 1}', "expected one of Start, Join"),
        (json.dumps(json.loads(encode(SETUP)) | {"labels": "ab"}), "Setup.labels: expected list"),
        (json.dumps(json.loads(encode(SETUP)) | {"labels": [1]}), "Setup.labels: expected str"),
        (json.dumps(json.loads(encode(EVENTS[5])) | {"metrics": {"f1": "x"}}), "Evaluation.metrics: expected a number"),
    ],
)
def test_a_line_that_is_no_event_says_why(line: bytes | str, message: str) -> None:
    with pytest.raises(BadEvent, match=message):
        decode(line)
