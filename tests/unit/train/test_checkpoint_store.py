from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch

from cpufinetune.errors import JobError
from cpufinetune.train.checkpoint.folder import clear
from cpufinetune.train.checkpoint.store import CheckpointStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MANY = 1_000_000  # floats: more than the small volume holds


@dataclass
class Kept:
    """A store, and the warnings it gave."""

    folder: Path
    warnings: list[str] = field(default_factory=list)

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.folder, self.warnings.append)

    def write(self, step: int, *, floats: int = 4) -> Path:
        model = {"weight": torch.full((floats,), float(step)), "bias": torch.arange(3)}
        optimizer = {"exp_avg.weight": torch.full((floats,), -float(step))}
        state = {"best_metric": 0.5, "job": "abc"}
        return self.store.write(step, {"model": model, "optimizer": optimizer}, state)

    def step_read(self) -> int | None:
        found = self.store.read()
        if found is None:
            return None
        assert found.path.name == f"step-{found.state['step']:08d}"
        assert found.tensors["model"]["weight"].tolist() == [float(found.state["step"])] * 4
        return int(found.state["step"])

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "output" / "checkpoints")


def test_a_checkpoint_survives_the_round_trip(kept: Kept) -> None:
    path = kept.write(7)
    found = kept.store.read()
    assert found is not None
    assert found.path == path
    assert found.tensors["model"]["weight"].tolist() == [7.0] * 4
    assert found.tensors["model"]["bias"].dtype == torch.int64
    assert found.tensors["optimizer"]["exp_avg.weight"].tolist() == [-7.0] * 4
    assert {name: found.state[name] for name in ("step", "best_metric", "job")} == {
        "step": 7, "best_metric": 0.5, "job": "abc",
    }  # fmt: skip
    assert kept.warnings == []


def test_files_are_named_and_latest_names_the_newest(kept: Kept) -> None:
    kept.write(7)
    path = kept.write(12)
    assert path == kept.folder / "step-00000012"
    assert sorted(file.name for file in path.iterdir()) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert (kept.folder / "latest").read_text(encoding="utf-8") == "step-00000012"
    assert kept.names() == ["latest", "step-00000007", "step-00000012"]


def test_nothing_written_is_nothing_read(kept: Kept) -> None:
    assert kept.step_read() is None
    kept.folder.mkdir(parents=True)
    assert kept.step_read() is None
    assert kept.warnings == []


def test_the_newest_is_read_and_two_are_kept(kept: Kept) -> None:
    for step in (5, 10, 15, 100):
        kept.write(step)
        assert kept.step_read() == step
    assert kept.names() == ["latest", "step-00000015", "step-00000100"]


def test_the_same_step_is_replaced(kept: Kept) -> None:
    kept.write(5)
    kept.write(10)
    kept.store.write(10, {"model": {"weight": torch.full((4,), 10.0)}}, {"job": "other"})
    found = kept.store.read()
    assert found is not None
    assert (found.state["job"], list(found.tensors)) == ("other", ["model"])
    assert kept.names() == ["latest", "step-00000005", "step-00000010"]


def test_cleared_checkpoints_are_gone(kept: Kept) -> None:
    kept.write(5)
    (kept.folder / "notes.txt").write_text("of somebody else", encoding="utf-8")
    clear(kept.folder)
    assert kept.step_read() is None
    assert kept.names() == ["notes.txt"]
    clear(kept.folder)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path, at: int = -1, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated tensors": lambda path: truncate(path / "model.safetensors"),
    "a flipped bit in the tensors": lambda path: flip(path / "optimizer.safetensors"),
    "missing tensors": lambda path: (path / "optimizer.safetensors").unlink(),
    "a missing state": lambda path: (path / "state.json").unlink(),
    "a truncated state": lambda path: truncate(path / "state.json"),
    "an empty state": lambda path: os.truncate(path / "state.json", 0),
    "a state that is no UTF-8": lambda path: flip(path / "state.json", at=1, bit=7),
    "a state without files": lambda path: (path / "state.json").write_text('{"step": 10}', encoding="utf-8"),
    "a state that is no object": lambda path: (path / "state.json").write_text("[]", encoding="utf-8"),
    "an empty folder": empty,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_skipped_with_one_warning(kept: Kept, damage: Callable[[Path], object]) -> None:
    kept.write(5)
    damage(kept.write(10))
    assert kept.step_read() == 5
    assert len(kept.warnings) == 1
    assert kept.warnings[0].startswith("checkpoint step-00000010 is damaged and skipped: ")


def test_a_flipped_bit_anywhere_in_the_state_is_noticed(kept: Kept) -> None:
    kept.write(5)
    state = kept.write(10) / "state.json"
    intact = state.read_bytes()
    unnoticed = []
    for at in range(len(intact)):
        flip(state, at=at)
        found = kept.store.read()
        if found is not None and found.path == state.parent:
            unnoticed.append(intact[max(0, at - 8) : at + 1].decode())
        else:
            state.parent.with_name(f".damaged-{state.parent.name}").rename(state.parent)
        state.write_bytes(intact)
    assert unnoticed == []


def test_each_damaged_checkpoint_gets_its_own_warning(kept: Kept) -> None:
    for step in (5, 10):
        truncate(kept.write(step) / "model.safetensors")
    assert kept.step_read() is None
    assert [warning.split()[1] for warning in kept.warnings] == ["step-00000010", "step-00000005"]


def test_leftovers_of_a_killed_writer_are_ignored(kept: Kept) -> None:
    kept.write(5)
    leftover = kept.folder / ".writing-step-00000010"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    (kept.folder / ".latest.tmp").write_text("step-", encoding="utf-8")
    assert kept.step_read() == 5
    assert kept.warnings == []
    kept.write(10)
    assert kept.step_read() == 10
    assert not leftover.exists()


def test_a_killed_writer_that_did_not_reach_latest_still_counts(kept: Kept) -> None:
    kept.write(5)
    kept.write(10)
    (kept.folder / "latest").write_text("step-00000005", encoding="utf-8")
    assert kept.step_read() == 10


@contextlib.contextmanager
def volume(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir(parents=True)
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a volume")
def test_a_full_volume_leaves_the_earlier_checkpoint_intact(kept: Kept) -> None:
    with volume(kept.folder, "size=1m"):
        kept.write(5)
        with pytest.raises(JobError, match="earlier checkpoints are intact") as caught:
            kept.write(10, floats=MANY)
        assert caught.value.reason == "OutputFull"
        assert kept.step_read() == 5
        assert kept.names() == ["latest", "step-00000005"]
        assert kept.warnings == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a volume")
def test_a_read_only_volume_is_the_users_to_change(kept: Kept) -> None:
    with volume(kept.folder, "ro"):
        with pytest.raises(JobError) as caught:
            kept.write(5)
        assert caught.value.reason == "OutputNotWritable"


WRITER = """
import json, pathlib, resource, sys, torch
from cpufinetune.errors import JobError
from cpufinetune.train.checkpoint.folder import clear
from cpufinetune.train.checkpoint.store import CheckpointStore
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
store = CheckpointStore(pathlib.Path(sys.argv[1]), print)
try:
    store.write(10, {"model": {"weight": torch.zeros(4)}, "optimizer": {"weight": torch.zeros(1_000_000)}}, {})
except JobError as error:
    print(json.dumps([error.reason, error.message]))
"""


def test_a_file_beyond_the_limit_leaves_the_earlier_checkpoint_intact(kept: Kept) -> None:
    kept.write(5)
    command = [sys.executable, "-c", WRITER, str(kept.folder)]
    said: list[Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert said[0] == "OutputFull"
    assert kept.step_read() == 5
    assert kept.names() == ["latest", "step-00000005"]
