"""What ranks tell their launcher: one JSON object a line.

`time` is seconds since the epoch by the rank's own clock, every duration is in seconds, every size in bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from cpufinetune.report.plain import camel, plain
from cpufinetune.report.readers import BadField, Reader, readers

PhaseName = Literal["Start", "Join", "Prepare", "Load", "Train", "Evaluate", "Checkpoint", "Save", "Done"]


class BadEvent(ValueError):  # noqa: N818 - the line is bad, nothing else went wrong
    """A line that is no event: broken JSON, an unknown name, a missing field or one of another type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A rank enters a phase of its life; the first phase of a life tells the attempt. Also a heartbeat."""

    rank: int
    name: PhaseName
    attempt: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A rank is alive."""

    rank: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What rank 0 is about to train, and what was chosen for it."""

    rank: int
    time: float
    world_size: int
    total_steps: int
    backend: str
    backend_reason: str
    precision: str
    precision_reason: str
    parameters: int
    trainable_parameters: int
    model: str
    resumed_from_step: int | None
    train_samples: int
    validation_samples: int
    test_samples: int
    labels: tuple[str, ...] = ()
    extra: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step of one rank.

    `loss` and `grad_norm` are global and count on rank 0 only; `samples`, `tokens` and `padded_tokens` are this rank's
    share. `seconds` is wall time since the step before, without evaluations and checkpoints in between.
    """

    rank: int
    time: float
    step: int
    epoch: float
    loss: float
    learning_rate: float
    grad_norm: float
    samples: int
    tokens: int
    padded_tokens: int
    seconds: float
    communication_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Rank 0's metrics on held-out samples after a step; the first metric that is no loss is the one that counts."""

    rank: int
    time: float
    step: int
    split: Literal["validation", "test"]
    metrics: dict[str, float]
    samples: int
    seconds: float
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointed:
    """A checkpoint is safely on disk."""

    rank: int
    time: float
    step: int
    path: str
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The finished model is safely on disk."""

    rank: int
    time: float
    path: str
    metrics: dict[str, float]
    checksum: str
    bytes: int
    steps: int
    best_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a rank gives up. `Permanent` ones are not worth another attempt; `reason` is CamelCase, `fix` is advice."""

    rank: int
    time: float
    kind: Literal["Permanent", "Retryable"]
    reason: str
    message: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Memory of a rank's process."""

    rank: int
    time: float
    peak_rss_bytes: int
    rss_bytes: int


Event = Phase | Heartbeat | Setup | Step | Evaluation | Checkpointed | Result | Failure | Resources

_TYPES: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (Phase, Heartbeat, Setup, Step, Evaluation, Checkpointed, Result, Failure, Resources)
}
_READERS: dict[str, dict[str, tuple[Reader, bool]]] = {name: readers(kind) for name, kind in _TYPES.items()}


def encode(event: Event) -> bytes:
    """The event as one line of strict JSON, newline included; NaN and infinities become null."""
    document = {"event": type(event).__name__, **plain(event)}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes | str) -> Event:
    """The event of a line; null numbers come back as NaN (times may not be null), fields it does not know are ignored.

    Raises:
        BadEvent: the line is no event.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadEvent(f"not a JSON object but {type(document).__name__}")
    name = document.get("event")
    if not isinstance(name, str) or name not in _TYPES:
        raise BadEvent(f"unknown event {name!r}")
    values: dict[str, object] = {}
    for key, (read, required) in _READERS[name].items():
        spelled = camel(key)
        if spelled not in document:
            if required:
                raise BadEvent(f"{name} has no {spelled}")
            continue
        try:
            values[key] = read(document[spelled])
        except BadField as error:
            raise BadEvent(f"{name}.{spelled}: {error}") from error
    return _TYPES[name](**values)  # type: ignore[arg-type]  # the readers checked each one
