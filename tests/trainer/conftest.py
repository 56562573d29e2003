"""Real data and models for the trainer's tests: Reuters R8, MiniLM, and a two-layer encoder made on the spot."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DEMO = REPOSITORY / ".cache" / "demo"
MODEL_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


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
    size: dict[str, Any] = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 512,
    }
    BertModel(BertConfig(vocab_size=30522, **size)).save_pretrained(folder)
    for name in MODEL_FILES:
        if (demo / "minilm" / name).exists():
            shutil.copyfile(demo / "minilm" / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def small_data(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 600 training and 200 test documents of R8."""
    folder = tmp_path_factory.mktemp("data")
    for split, count in (("train", 600), ("test", 200)):
        with (demo / "reuters-r8" / f"{split}.csv").open(encoding="utf-8", newline="") as source:
            rows = list(csv.reader(source))
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as target:
            csv.writer(target).writerows(rows[: count + 1])
    return folder


def document(model: Path, data: Path, **changes: Any) -> dict[str, Any]:
    """Return a job document; `changes` are merged into its sections, for example `training={"seed": 1}`."""
    spec: dict[str, Any] = {
        "model": {"path": str(model)},
        "dataset": {"path": str(data), "files": {"train": "train.csv", "test": "test.csv"}},
        "task": {"text": ["text"], "label": "label", "maxLength": 64},
        "training": {"epochs": 1, "batchSize": 16, "learningRate": 5e-4, "precision": "Float32"},
        "nodes": 1,
        "output": {"ephemeral": True},
    }
    for section, values in changes.items():
        spec[section] = {**spec[section], **values} if isinstance(values, dict) and section in spec else values
    return {"apiVersion": "cpufinetune.dev/v1alpha1", "kind": "CpuFineTune", "metadata": {"name": "test"}, "spec": spec}


def write_document(path: Path, content: dict[str, Any]) -> Path:
    """Write a job document as YAML."""
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def pids_named(prefix: str) -> dict[str, int]:
    """Return running processes whose name starts with `prefix`."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name = (entry / "comm").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if name.startswith(prefix):
            found[name] = int(entry.name)
    return found
