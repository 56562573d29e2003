"""Preparation, once a node: read and check the data, tokenise it, and leave memory-mapped splits for the ranks."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import shutil
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from cpufinetune.errors import JobError
from cpufinetune.train.checkpoint.store import explain, write_text
from cpufinetune.train.data.labels import Labels, learn
from cpufinetune.train.data.sources import Rows, content_key, hold_out, read_splits
from cpufinetune.train.data.store import Split, open_split, write_split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cpufinetune.job.document import Spec

FORMAT = 1
TEXTS_A_BATCH = 512
CURRENT = "prepared"
LOCK = ".prepare.lock"
LOCK_PAUSE = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class Prepared:
    """Tokenised data: the splits that exist, the classes, and the padding token."""

    folder: Path
    labels: Labels
    pad_token: int
    samples: dict[str, int]

    def split(self, name: str) -> Split | None:
        """Open a split, or None if the job has none of that name."""
        return open_split(self.folder / f"{name}.safetensors") if name in self.samples else None


def fingerprint(spec: Spec, data_root: Path | None, tokenizer_key: str) -> str:
    """Return a name for the prepared data that changes with anything that shapes it."""
    parts = [
        FORMAT,
        content_key(spec.dataset, data_root),
        asdict(spec.task),
        spec.dataset.validation_fraction,
        spec.training.seed,
        tokenizer_key,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def prepare(
    spec: Spec, data_root: Path | None, *, tokenizer: Any, tokenizer_key: str, scratch: Path, beat: Callable[[], None]
) -> Prepared:
    """Read, check and tokenise the data, or find that an earlier call did.

    Args:
        spec: the job.
        data_root: folder of the data files; None for a hub dataset.
        tokenizer: a fast tokenizer.
        tokenizer_key: what identifies the tokenizer.
        scratch: folder for prepared data; several processes may share it.
        beat: called now and then, so that a long tokenisation does not look like a stall.

    Raises:
        JobError: anything wrong with the data, naming file, row and column.
    """
    folder = scratch / f"data-{fingerprint(spec, data_root, tokenizer_key)}"
    scratch.mkdir(parents=True, exist_ok=True)
    with _only_one(scratch / LOCK, beat):
        if not (folder / "meta.json").is_file():
            _write(spec, data_root, folder, tokenizer=tokenizer, beat=beat)
        write_text(scratch / CURRENT, folder.name)
    return load(folder)


@contextlib.contextmanager
def _only_one(path: Path, beat: Callable[[], None]) -> Iterator[None]:
    """Let one process of the machine prepare; simulated nodes share a scratch folder."""
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                beat()
                time.sleep(LOCK_PAUSE)
        yield


def _write(spec: Spec, data_root: Path | None, folder: Path, *, tokenizer: Any, beat: Callable[[], None]) -> None:
    temporary = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(temporary, ignore_errors=True)
    # What `datasets` keeps is keyed by path and time, not by content: it lives no longer than this preparation.
    cache = temporary / "datasets"
    cache.mkdir(parents=True)
    try:
        _read_and_tokenise(spec, data_root, temporary, cache, tokenizer=tokenizer, beat=beat)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise explain(error, folder.parent) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(cache, ignore_errors=True)
    temporary.rename(folder)


def _read_and_tokenise(
    spec: Spec, data_root: Path | None, folder: Path, cache: Path, *, tokenizer: Any, beat: Callable[[], None]
) -> None:
    rows = read_splits(spec.dataset, spec.task, data_root, cache)
    beat()
    # Before rows are held out: messages count rows as the file does, and a class may have but one.
    labels = learn(rows["train"].source, spec.task.label, rows["train"].labels)
    _check_positive(spec, labels)
    fraction = spec.dataset.validation_fraction
    if "validation" not in rows and fraction > 0:
        rows["train"], rows["validation"] = hold_out(rows["train"], fraction, spec.training.seed)
    samples = {
        name: _tokenise(split, labels, spec=spec, tokenizer=tokenizer, path=folder / f"{name}.safetensors", beat=beat)
        for name, split in rows.items()
    }
    meta = {"labels": labels.names, "padToken": tokenizer.pad_token_id, "samples": samples}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


def load_current(scratch: Path) -> Prepared:
    """Open what the last `prepare` on this node left."""
    return load(scratch / (scratch / CURRENT).read_text(encoding="utf-8"))


def load(folder: Path) -> Prepared:
    """Open what `prepare` left."""
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return Prepared(folder, Labels(tuple(meta["labels"])), meta["padToken"], meta["samples"])


def _tokenise(rows: Rows, labels: Labels, *, spec: Spec, tokenizer: Any, path: Path, beat: Callable[[], None]) -> int:
    tokens: list[np.ndarray[Any, Any]] = []
    segments: list[np.ndarray[Any, Any]] = []
    numbers = labels.encode(rows.source, rows.labels)
    for start in range(0, len(rows.labels), TEXTS_A_BATCH):
        part = [column[start : start + TEXTS_A_BATCH] for column in rows.texts]
        coded = tokenizer(*part, truncation=True, max_length=spec.task.max_length)
        tokens.extend(np.asarray(row, dtype=np.int32) for row in coded["input_ids"])
        if "token_type_ids" in coded:
            segments.extend(np.asarray(row, dtype=np.uint8) for row in coded["token_type_ids"])
        beat()
    # Segments that are all zero are the model's default: storing them would only cost bandwidth.
    kept = segments if any(row.any() for row in segments) else None
    write_split(path, tokens, numbers, kept)
    return len(numbers)


def _check_positive(spec: Spec, labels: Labels) -> None:
    positive = spec.task.positive_label
    if positive is not None and positive not in labels.names:
        raise JobError(
            "UnknownLabel",
            f"spec.task.positiveLabel '{positive}' is not a class of the data",
            f"use one of {', '.join(repr(name) for name in labels.names[:20])}",
        )
