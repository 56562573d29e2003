"""Runs that are disturbed from outside, and models that are not like the others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from transformers import BertConfig, BertModel, BigBirdConfig, BigBirdModel

if TYPE_CHECKING:
    from collections.abc import Callable

SOON = 30.0  # seconds, most of which are imports

pytestmark = pytest.mark.timeout(600)

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 30522,
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


@pytest.fixture(scope="module")
def save(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Any], Path]:
    """Write a model folder with the demo's tokenizer."""

    def write(name: str, model: Any) -> Path:
        folder = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(folder)
        for file in TOKENIZER_FILES:
            shutil.copyfile(demo / "minilm" / file, folder / file)
        return folder

    return write


@pytest.fixture
def content(small_model: Path, small_data: Path, document: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A short job on two nodes."""
    return document(small_model, small_data, nodes=2, training={"maxSteps": 40, "checkpointEvery": 10})


def test_a_run_whose_reader_goes_away_goes_on(content: dict[str, Any], start: Any, tmp_path: Path) -> None:
    command = start(content, name="unread").process.args
    process = subprocess.Popen([*command[:-3], str(tmp_path / "out"), *command[-2:]], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["outcome"] == "Succeeded"


def test_a_run_that_is_stopped_while_it_starts_ends_at_once(content: dict[str, Any], start: Any) -> None:
    run = start(content, name="early")
    deadline = time.monotonic() + SOON
    while "preparing model and data" not in run.log:
        assert time.monotonic() < deadline, run.log
        time.sleep(0.05)
    run.process.send_signal(signal.SIGTERM)
    stopped = time.monotonic()
    assert run.end() == 143, run.log
    assert time.monotonic() - stopped < SOON
    assert "Traceback" not in run.log
    assert run.report["outcome"] == "Interrupted"


def test_a_second_interrupt_does_not_wait_for_a_rank_that_hangs(content: dict[str, Any], start: Any) -> None:
    run = start(content, name="impatient")
    run.wait_for(lambda event: event["event"] == "Step" and event["step"] >= 5, "step 5")
    run.process.send_signal(signal.SIGTERM)
    run.process.send_signal(signal.SIGINT)
    stopped = time.monotonic()
    assert run.end() == 143, run.log
    assert time.monotonic() - stopped < SOON


def test_a_model_stored_in_bf16_trains_in_fp32_on_every_rank(
    content: dict[str, Any], save: Callable[[str, Any], Path], start: Any
) -> None:
    torch.manual_seed(1)
    half: Any = BertModel(BertConfig(**SMALL))
    model = save("half", half.to(torch.bfloat16))
    assert json.loads((model / "config.json").read_text(encoding="utf-8"))["dtype"] == "bfloat16"
    content["spec"]["model"]["path"] = str(model)
    run = start(content, name="half")
    assert run.end() == 0, run.log
    assert run.report["setup"]["worldSize"] == 2
    saved = json.loads((run.output / "model" / "config.json").read_text(encoding="utf-8"))
    assert saved["dtype"] == "float32"


def test_a_model_with_a_parameter_that_nothing_uses_resumes(
    content: dict[str, Any], save: Callable[[str, Any], Path], start: Any
) -> None:
    torch.manual_seed(1)
    model = save("unused", BigBirdModel(BigBirdConfig(**SMALL, attention_type="original_full")))
    content["spec"]["model"]["path"] = str(model)
    run = start(content, name="unused")
    run.wait_for(lambda event: event["event"] == "Checkpointed" and event["step"] == 20, "a checkpoint")
    run.kill(1)
    assert run.end() == 0, run.log
    assert len(run.report["restarts"]) == 1
    assert run.report["setup"]["resumedFromStep"] in {20, 30, 40}


def test_a_module_of_the_same_name_in_the_current_folder_is_not_imported(
    content: dict[str, Any], start: Any, tmp_path: Path
) -> None:
    (tmp_path / "transformers.py").write_text("raise SystemExit('imported from the current folder')", encoding="utf-8")
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump(content), encoding="utf-8")
    command = start(content, name="shadow").process.args[0]
    found = subprocess.run(
        [command, "run", "-f", str(job), "-o", str(tmp_path / "out"), "--set", "training.maxSteps=2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_ranks_run_on_cores_of_their_own_with_as_many_threads(content: dict[str, Any], start: Any) -> None:
    run = start(content, name="pinned")
    run.wait_for(lambda event: event["event"] == "Step", "a step")
    pids = [run.pid("cft-rank-0"), run.pid("cft-rank-1")]
    cores = [os.sched_getaffinity(pid) for pid in pids]
    environments = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in pids]
    assert run.end() == 0, run.log
    assert not cores[0] & cores[1], "this test needs two cores"
    for own, environment in zip(cores, environments, strict=True):
        assert own <= os.sched_getaffinity(0)
        assert f"OMP_NUM_THREADS={len(own)}".encode() in environment
    assert all(f"core{'s' if len(own) > 1 else ''} {min(own)}" in "\n".join(run.report["layout"]) for own in cores)
