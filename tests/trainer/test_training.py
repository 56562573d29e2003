"""What training leaves behind: a model that plain transformers loads, the best one, and the same one after a stop."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open

from cpufinetune.train.emit import Emitter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

OK, BAD_INPUT, INTERRUPTED = 0, 2, 143
LENGTH = 64

Document = dict[str, Any]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def metric(outcome: Any, split: str) -> list[float]:
    """Return the accuracies that were reported for a split, in order."""
    return [event.metrics["accuracy"] for event in outcome.all("Evaluation") if event.split == split]


def accuracy(model: Path, texts: Sequence[Any], labels: Sequence[str]) -> float:
    """Measure a saved model as its user would."""
    from transformers import pipeline  # noqa: PLC0415 - slow to import

    assert "cpufinetune" not in (model / "config.json").read_text(encoding="utf-8")
    make: Any = pipeline
    classify = make("text-classification", model=str(model), device="cpu")
    assert classify.model.config._attn_implementation != "cpufinetune"
    found = classify(list(texts), truncation=True, max_length=LENGTH, padding=True, batch_size=32)
    return sum(bool(one["label"] == label) for one, label in zip(found, labels, strict=True)) / len(labels)


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Send SIGTERM to this process when the step has been told."""
    send = Emitter.send

    def interrupting(self: Emitter, event: Any, /, **fields: Any) -> None:
        send(self, event, **fields)
        if fields.get("step") == step and event.__name__ == "Step":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Emitter, "send", interrupting)


@pytest.fixture
def make(small_model: Path, small_data: Path, document: Callable[..., Document]) -> Callable[..., Document]:
    """Build a job on small model and data: `make(training={...})`."""

    def build(data: Path = small_data, **changes: Any) -> Document:
        return document(small_model, data, **changes)

    return build


def test_the_saved_model_gives_the_reported_accuracy_in_plain_transformers(
    make: Callable[..., Document], small_data: Path, train_here: Any, tmp_path: Path
) -> None:
    outcome = train_here(make(training={"epochs": 3, "learningRate": 1e-3}), tmp_path)
    assert outcome.code == OK, outcome.events[-1]
    assert "sample attention" in outcome.one("Setup").extra["levers"]
    rows = read(small_data / "test.csv")
    names = sorted({row["label"] for row in read(small_data / "train.csv")})
    configuration = json.loads((outcome.output / "model" / "config.json").read_text(encoding="utf-8"))
    assert [configuration["id2label"][str(number)] for number in range(len(names))] == names
    assert outcome.one("Setup").labels == tuple(names)
    (reported,) = metric(outcome, "test")
    assert reported == outcome.one("Result").metrics["accuracy"]
    assert reported > 0.7
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    assert accuracy(outcome.output / "model", texts, labels) == reported


def test_integer_labels_are_ordered_by_value(
    make: Callable[..., Document], small_data: Path, train_here: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train.csv", "test.csv"):
        numbers = {"earn": "10", "acq": "2"}
        rows = [{**row, "label": numbers.get(row["label"], "-1")} for row in read(small_data / name)]
        write(data / name, rows)
    outcome = train_here(make(data, training={"maxSteps": 30}), tmp_path / "run")
    assert outcome.code == OK, outcome.events[-1]
    assert outcome.one("Setup").labels == ("-1", "2", "10")
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    assert accuracy(outcome.output / "model", texts, labels) == outcome.one("Result").metrics["accuracy"]


def test_a_pair_of_texts_is_told_apart_by_segments(
    make: Callable[..., Document], small_data: Path, train_here: Any, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("train.csv", "test.csv"):
        split = [(row["label"], row["text"].split()) for row in read(small_data / name)]
        rows = [
            {"label": label, "head": " ".join(words[:8]), "body": " ".join(words[8:]) or "nothing"}
            for label, words in split
        ]
        write(data / name, rows)
    content = make(data, task={"text": ["head", "body"]}, training={"maxSteps": 60, "learningRate": 1e-3})
    outcome = train_here(content, tmp_path / "run")
    assert outcome.code == OK, outcome.events[-1]
    (prepared,) = outcome.scratch.glob("data-*/train.safetensors")
    with safe_open(prepared, framework="pt") as stored:
        assert stored.get_tensor("segments").unique().tolist() == [0, 1]
    pairs = [{"text": row["head"], "text_pair": row["body"]} for row in rows]
    labels = [row["label"] for row in rows]
    assert accuracy(outcome.output / "model", pairs, labels) == outcome.one("Result").metrics["accuracy"]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks for it
def test_adapters_are_few_cheap_to_checkpoint_and_merged_in_the_end(
    make: Callable[..., Document], small_data: Path, train_here: Any, tmp_path: Path
) -> None:
    lora = {"rank": 8, "alpha": 32, "dropout": 0.1, "targets": ["query", "value"]}
    outcome = train_here(make(training={"epochs": 2, "learningRate": 1e-2, "lora": lora}), tmp_path)
    assert outcome.code == OK, outcome.events[-1]
    setup = outcome.one("Setup")
    assert setup.trainable_parameters < 0.01 * setup.parameters
    assert outcome.all("Checkpointed")[-1].bytes < 0.1 * 4 * setup.parameters
    reported, rows = outcome.one("Result").metrics["accuracy"], read(small_data / "test.csv")
    assert reported > 0.5
    assert "adapter" not in " ".join(path.name for path in (outcome.output / "model").iterdir())
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    assert accuracy(outcome.output / "model", texts, labels) == reported


def test_the_best_model_of_the_run_is_saved_not_the_last(
    make: Callable[..., Document],
    small_data: Path,
    train_here: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # From step 40 on the rate ruins the model.
    monkeypatch.setattr("cpufinetune.train.loop.learning_rate", lambda _, step, __: 1e-3 if step < 40 else 1.0)
    files = {"train": "train.csv", "validation": "test.csv"}
    training = {"maxSteps": 60, "evaluateEvery": 20}
    outcome = train_here(make(dataset={"files": files}, training=training), tmp_path)
    assert outcome.code == OK, outcome.events[-1]
    reported = metric(outcome, "validation")
    best = max(reported)
    assert len(reported) == 3
    assert reported[-1] < best
    assert outcome.one("Result").metrics["accuracy"] == best
    rows = read(small_data / "test.csv")
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    assert accuracy(outcome.output / "model", texts, labels) == best


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        pytest.param(True, "BFloat16", id="bf16 where the CPU has it"),
        pytest.param(False, "Float32", id="fp32 elsewhere"),
    ],
)
def test_precision_auto_follows_the_cpu(
    native: bool,  # noqa: FBT001 - a column of the table
    expected: str,
    make: Callable[..., Document],
    train_here: Any,
    tmp_path: Path,
) -> None:
    training = {"maxSteps": 20, "learningRate": 1e-3, "precision": "Auto"}
    outcome = train_here(make(training=training), tmp_path, native_bf16=native)
    assert outcome.code == OK, outcome.events[-1]
    assert outcome.one("Setup").precision == expected
    losses = outcome.losses()
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-5:]) < sum(losses[:5])
    with safe_open(outcome.output / "model" / "model.safetensors", framework="pt") as stored:
        assert {stored.get_tensor(name).dtype for name in stored.keys()} == {torch.float32}  # noqa: SIM118 - no mapping


def test_micro_batches_do_not_change_the_losses(make: Callable[..., Document], train_here: Any, tmp_path: Path) -> None:
    losses = []
    for size in (None, 4):
        training = {"maxSteps": 20, "learningRate": 5e-5, "evaluateEvery": "Never"}
        changes = training if size is None else {**training, "microBatchSize": size}
        outcome = train_here(make(training=changes), tmp_path / f"{size}")
        assert outcome.code == OK, outcome.events[-1]
        assert outcome.one("Setup").extra["microBatchSize"] == (size or 16)
        losses.append(outcome.losses())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("Constant", [1.0] * 8),
        ("Linear", [1 - step / 8 for step in range(8)]),
        ("Cosine", [0.5 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]),
    ],
)
def test_the_schedule_reaches_the_optimizer(
    schedule: str, factors: list[float], make: Callable[..., Document], train_here: Any, tmp_path: Path
) -> None:
    training = {"maxSteps": 8, "schedule": schedule, "warmupRatio": 0, "learningRate": 1e-3, "evaluateEvery": "Never"}
    outcome = train_here(make(training=training), tmp_path)
    rates = [event.learning_rate for event in outcome.all("Step")]
    assert rates == pytest.approx([1e-3 * factor for factor in factors])


# Step 24 is followed by an evaluation, in which the run is stopped.
RECIPE = {"maxSteps": 50, "evaluateEvery": 12, "checkpointEvery": 10, "learningRate": 1e-3}


def interrupted(content: Document, train_here: Any, folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 24)
        outcome = train_here(content, folder)
    assert outcome.code == INTERRUPTED
    assert not outcome.half_written()
    kept = sorted(path.name for path in (outcome.output / "checkpoints").glob("step-*"))
    assert kept == ["step-00000020", "step-00000024"]
    return outcome


@pytest.fixture(scope="module")
def undisturbed(
    small_model: Path,
    small_data: Path,
    document: Callable[..., Document],
    train_here: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    outcome = train_here(document(small_model, small_data, training=RECIPE), tmp_path_factory.mktemp("undisturbed"))
    assert outcome.code == OK, outcome.events[-1]
    return outcome


def assert_resumed(outcome: Any, step: int, undisturbed: Any) -> None:
    assert outcome.code == OK, outcome.events[-1]
    assert outcome.one("Setup").resumed_from_step == step
    assert outcome.losses() == undisturbed.losses()[step:]
    assert outcome.one("Result").checksum == undisturbed.one("Result").checksum
    assert outcome.one("Result").metrics == undisturbed.one("Result").metrics


def test_a_resumed_run_ends_with_the_same_weights(
    make: Callable[..., Document], undisturbed: Any, train_here: Any, tmp_path: Path
) -> None:
    interrupted(make(training=RECIPE), train_here, tmp_path)
    assert_resumed(train_here(make(training=RECIPE), tmp_path), 24, undisturbed)


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(  # noqa: PLR0917 - fixtures
    file: str,
    make: Callable[..., Document],
    undisturbed: Any,
    train_here: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped = interrupted(make(training=RECIPE), train_here, tmp_path)
    damaged = stopped.output / "checkpoints" / "step-00000024" / file
    os.truncate(damaged, damaged.stat().st_size // 2)
    assert_resumed(train_here(make(training=RECIPE), tmp_path), 20, undisturbed)
    assert "warning: checkpoint step-00000024 is damaged and skipped: " in capsys.readouterr().out


def test_the_checkpoint_of_another_job_is_refused_and_kept(
    make: Callable[..., Document], train_here: Any, tmp_path: Path
) -> None:
    interrupted(make(training=RECIPE), train_here, tmp_path)
    other = train_here(make(training={**RECIPE, "seed": 1}), tmp_path)
    failure = other.one("Failure")
    assert other.code == BAD_INPUT
    assert (failure.kind, failure.reason) == ("Permanent", "OtherJob")
    assert "checkpoints/step-00000024 is a checkpoint of another" in failure.message
    assert failure.fix == "use another output folder, or --overwrite to start anew"
    assert not other.half_written()
    assert train_here(make(training=RECIPE), tmp_path).one("Setup").resumed_from_step == 24
