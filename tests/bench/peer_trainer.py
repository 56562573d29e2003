"""The peer: Hugging Face `Trainer` with its defaults, as run_glue uses it: every text padded to 128 tokens.

python peer_trainer.py '{"model": ..., "data": ..., "text": [...], "steps": 80, ...}'; prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class StepClock(TrainerCallback):
    """Remembers when each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())


def main(options: dict[str, Any]) -> dict[str, Any]:
    """Train and test; return times of steps (s) and test accuracy."""
    torch.set_num_threads(options["threads"])
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(options["model"])
    files = {split: str(Path(options["data"]) / f"{split}.csv") for split in ("train", "test")}
    raw = datasets.load_dataset("csv", data_files=files)
    names = sorted({str(label) for label in raw["train"]["label"]})

    def encode(rows: dict[str, list[Any]]) -> dict[str, Any]:
        texts = [rows[column] for column in options["text"]]
        coded = tokenizer(*texts, padding="max_length", max_length=options["maxLength"], truncation=True)
        coded["labels"] = [names.index(str(label)) for label in rows["label"]]
        return dict(coded)

    coded = raw.map(encode, batched=True, remove_columns=[*options["text"], "label"])
    model = AutoModelForSequenceClassification.from_pretrained(options["model"], num_labels=len(names))
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                use_cpu=True,
                seed=42,
                max_steps=options["steps"],
                per_device_train_batch_size=options["batchSize"],
                learning_rate=options["learningRate"],
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=coded["train"],
            eval_dataset=coded["test"],
            compute_metrics=lambda found: {
                "accuracy": float(np.mean(np.asarray(found.predictions).argmax(-1) == found.label_ids)),
            },
            callbacks=[clock],
        )
        trainer.train()
        accuracy = trainer.evaluate()["eval_accuracy"] if options["test"] else None
    return {"times": clock.times, "accuracy": accuracy}


if __name__ == "__main__":
    result = main(json.loads(sys.argv[1]))
    print("RESULT " + json.dumps(result))
