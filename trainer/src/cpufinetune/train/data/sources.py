"""Where the splits of a job come from: files or the hub, and the held-out share of training data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cpufinetune.errors import JobError
from cpufinetune.train.data.files import read_file
from cpufinetune.train.data.labels import rows as name_rows

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.job.document import Dataset, Splits, Task

SPLITS = ("train", "validation", "test")
HASH_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Rows:
    """One split as read: `texts[column][row]`, labels as they stand in the data, and a name for messages."""

    source: str
    texts: tuple[list[str], ...]
    labels: list[Any]

    def take(self, chosen: np.ndarray[Any, Any]) -> Rows:
        """Return the chosen rows."""
        texts = tuple([column[row] for row in chosen] for column in self.texts)
        return Rows(self.source, texts, [self.labels[row] for row in chosen])


def read_splits(dataset: Dataset, task: Task, root: Path | None, cache: Path) -> dict[str, Rows]:
    """Read all splits that the job names.

    Args:
        dataset: the job's data.
        task: names the columns.
        root: the folder of files; None for a hub dataset.
        cache: where `datasets` may keep its files.
    """
    columns = [*task.text, task.label]
    found: dict[str, Rows] = {}
    for split, name in named_splits(dataset.files if root is not None else dataset.splits).items():
        table = read_file(root / name, columns, cache) if root is not None else read_hub(dataset, name, columns, cache)
        source = str(root / name) if root is not None else f"{dataset.name}/{name}"
        found[split] = _checked(source, table, task)
    return found


def named_splits(named: Splits | None) -> dict[str, str]:
    """Return the name of each split that is used; by default those for training and validation."""
    if named is None:
        return {split: split for split in SPLITS if split != "test"}
    names = {split: getattr(named, split) for split in SPLITS}
    return {split: name for split, name in names.items() if name is not None}


def hold_out(train: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Split training rows into (train, validation) at random; at least one row each."""
    count = min(max(1, round(len(train.labels) * fraction)), len(train.labels) - 1)
    order = np.random.Generator(np.random.PCG64([seed, 0x5917])).permutation(len(train.labels))
    held = np.zeros(len(order), dtype=bool)
    held[order[:count]] = True
    return train.take(np.flatnonzero(~held)), train.take(np.flatnonzero(held))


def content_key(dataset: Dataset, root: Path | None) -> list[str]:
    """Return what identifies the data: the hash of each file, or the hub's name and revision."""
    if root is None:
        return [f"{dataset.name}", f"{dataset.config}", f"{dataset.revision}", f"{dataset.splits}"]
    named = dataset.files
    names = [getattr(named, split) for split in SPLITS] if named else []
    return [f"{name}:{_digest(root / name) if name and (root / name).is_file() else None}" for name in names]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def read_hub(dataset: Dataset, split: str, columns: list[str], cache: Path) -> dict[str, list[Any]]:
    """Read the named columns of a split of a hub dataset; classes by their names.

    Raises:
        JobError: it is neither cached nor to be had, or has no such split or column.
    """
    import datasets  # noqa: PLC0415 - slow to import, and only preparation needs it

    datasets.disable_progress_bars()
    where = f"dataset '{dataset.name}' at revision {dataset.revision}"
    try:
        table = datasets.load_dataset(
            dataset.name, dataset.config, split=split, revision=dataset.revision, cache_dir=str(cache)
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise JobError(
            "DatasetUnavailable",
            f"{where}, split '{split}': {error}",
            "check name, config, revision and the connection to the hub, or give files instead",
        ) from error
    missing = [column for column in columns if column not in table.column_names]
    if missing:
        raise JobError("MissingColumn", f"{where}: no column '{missing[0]}'", f"it has {', '.join(table.column_names)}")
    found = {column: list(table[column]) for column in columns}
    feature = table.features[columns[-1]]
    if hasattr(feature, "int2str"):
        # Hidden test labels are -1: they have no name.
        found[columns[-1]] = [
            value if value is None or value < 0 else feature.int2str(value) for value in found[columns[-1]]
        ]
    return found


def _checked(source: str, table: dict[str, list[Any]], task: Task) -> Rows:
    texts = []
    for column in task.text:
        values = table[column]
        wrong = [row for row, value in enumerate(values, 1) if value is not None and not isinstance(value, str)]
        if wrong:
            raise JobError(
                "NotText", f"{source}: column '{column}' is not text in row {name_rows(wrong)}", "write it as a string"
            )
        empty = [row for row, value in enumerate(values, 1) if value is None or not value.strip()]
        if empty:
            raise JobError(
                "EmptyText",
                f"{source}: column '{column}' is empty in row {name_rows(empty)}",
                "remove these rows or fill them in",
            )
        texts.append(values)
    return Rows(source, tuple(texts), table[task.label])
