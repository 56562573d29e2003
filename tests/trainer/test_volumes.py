"""Volumes that fill up, and plans held against runs. These tests mount small volumes, so they need root."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cpufinetune.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OK, BAD_INPUT = 0, 2
MIB = 1 << 20
MOUNT, UMOUNT = (shutil.which(name) or name for name in ("mount", "umount"))
EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "reuters-r8.yaml"
TOLERANCE = 0.15
LEARNT = 0.90

Document = dict[str, Any]


def mount(folder: Path, options: str) -> None:
    """Mount a memory volume, or mount it again with other options."""
    done = subprocess.run(
        [MOUNT, "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"run these tests as root, they mount small volumes: {done.stderr.strip()}")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a volume of so many bytes, or give the mounted one another size."""
    folder = tmp_path / "volume"

    def sized(size: int) -> Path:
        again = "remount," if folder.is_dir() else ""
        folder.mkdir(exist_ok=True)
        mount(folder, f"{again}size={size}")
        return folder

    yield sized
    subprocess.run([UMOUNT, "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def make(small_model: Path, small_data: Path, document: Callable[..., Document]) -> Callable[..., Document]:
    """Build a job of 40 steps: `make(training={...})`."""

    def build(**training: Any) -> Document:
        recipe = {"maxSteps": 40, "evaluateEvery": "Never", "checkpointEvery": 10, "learningRate": 1e-3}
        return document(small_model, small_data, training={**recipe, **training})

    return build


@pytest.mark.parametrize(
    ("training", "room", "kept", "place"),
    [
        pytest.param({}, 2.5, [10, 20], "checkpoints", id="in the third checkpoint"),
        pytest.param({"evaluateEvery": 25}, 2.2, [10, 20], "checkpoints/best", id="in the best weights"),
        pytest.param({"checkpointEvery": 100}, 1.1, [40], ".", id="in the model"),
    ],
)
def test_a_full_volume_costs_nothing_that_was_whole_and_once_enlarged_the_run_resumes(  # noqa: PLR0917 - fixtures
    training: dict[str, Any],
    room: float,
    kept: list[int],
    place: str,
    make: Callable[..., Document],
    volume: Callable[[int], Path],
    train_here: Any,
    tmp_path: Path,
) -> None:
    content = make(**training)
    undisturbed = train_here(content, tmp_path / "undisturbed")
    assert undisturbed.code == OK
    size = undisturbed.all("Checkpointed")[0].bytes
    output = volume(round(room * size)) / "output"

    outcome = train_here(content, tmp_path / "full", output=str(output))
    assert outcome.code == BAD_INPUT
    failure = outcome.one("Failure")
    assert (failure.kind, failure.reason) == ("Permanent", "OutputFull")
    assert failure.message.startswith(f"{output / place}: ")
    assert "MiB left" in failure.message
    assert "enlarge the volume" in failure.fix
    assert not outcome.half_written()
    found = sorted(path.name for path in (output / "checkpoints").glob("step-*"))
    assert found == [f"step-{step:08d}" for step in kept]

    volume(10 * size)
    again = train_here(content, tmp_path / "full", output=str(output))
    assert again.code == OK, again.events[-1]
    assert again.one("Setup").resumed_from_step == kept[-1]
    assert again.one("Result").checksum == undisturbed.one("Result").checksum


@pytest.mark.timeout(600)
def test_the_whole_demo_learns_within_the_planned_memory(demo: Path, start: Any, tmp_path: Path) -> None:
    content = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    content["spec"]["model"]["path"] = str(demo / "minilm")
    content["spec"]["dataset"]["path"] = str(demo / "reuters-r8")
    run = start(content, name="memory")
    assert run.end(seconds=500) == OK, run.log
    assert run.report["result"]["metrics"]["accuracy"] >= LEARNT
    measured = run.report["peakMemory"]["largestBytes"]

    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("cpufinetune")), "plan", "-f", str(file), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    planned = json.loads(answer.stdout)["memory"]
    parts = ", ".join(f"{name} {value / MIB:.0f}" for name, value in planned.items())
    print(f"planned {planned['total'] / MIB:.0f} MiB ({parts}), measured {measured / MIB:.0f} MiB")
    assert planned["total"] == pytest.approx(measured, rel=TOLERANCE)


def test_a_plan_in_json_has_sane_numbers(
    small_model: Path,
    document: Callable[..., dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [f"{label},text of {label}" for label in ("sport", "trade") * 2]
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("\n".join(["label,text", *rows, ""]), encoding="utf-8")
    file = tmp_path / "job.yaml"
    training = {"batchSize": 2, "epochs": 3}
    content = document(
        small_model, tmp_path, training=training, node={"cpu": 1, "ranks": 1}, dataset={"validationFraction": 0.25}
    )
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert main(["plan", "-f", str(file), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["samples"] == {"train": 3, "validation": 1, "test": 4}
    assert plan["classes"] == ["sport", "trade"]
    assert (plan["worldSize"], plan["steps_per_epoch"], plan["total_steps"]) == (1, 2, 6)
    assert (plan["precision"], plan["wire_bytes"], plan["micro_batch_size"]) == ("Float32", 0, 2)
    assert 0 <= plan["padding_share"] < 0.5
    assert plan["parameters"] == plan["trainable_parameters"] == pytest.approx(4.4e6, rel=0.05)
    assert plan["checkpoint_bytes"] == 3 * 4 * plan["parameters"]
    memory = plan["memory"]
    assert memory["weights"] == 4 * plan["parameters"]
    assert memory["total"] >= sum(value for part, value in memory.items() if part != "total")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "test.csv", "train.csv"]
