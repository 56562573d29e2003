"""All ranks use one backend: oneCCL where all can, else gloo with the reason, and never a hang."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cpufinetune.comms.ccl import compile as compiling
from cpufinetune.comms.choice import OURS, Choice
from cpufinetune.train.settings import RankSettings

RANK = Path(__file__).with_name("join_rank.py")
LONGEST = 60.0
# Seconds in which ranks must know what they use, whatever is wrong.
LIMIT = 10.0
# Torch asks for the name of each peer's address, and a name service that does not answer takes 10 s by default.
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR", "RES_OPTIONS": "timeout:1 attempts:1"}
MISSING = Choice("gloo", "oneCCL is not installed")

Join = Callable[..., list[dict[str, Any]]]


@dataclass(frozen=True)
class Different:
    """How rank 1 differs from rank 0."""

    choice: Choice | None = None
    environment: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def ours() -> Choice:
    """The backend, compiled."""
    return Choice("ccl", "passed a test", OURS, str(compiling.ensure()))


@pytest.fixture
def join(ours: Choice, tmp_path: Path) -> Join:
    """Have two ranks join; return what each came to."""

    def begin(other: Different, *, insist: bool = False) -> list[dict[str, Any]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        processes = []
        for rank in range(2):
            scratch = tmp_path / str(rank)
            scratch.mkdir()
            settings = RankSettings(
                role="train",
                job_file="",
                model_root=None,
                data_root=None,
                scratch=str(scratch),
                output="",
                rank=rank,
                world_size=2,
                master_port=port,
                workers=(min(os.sched_getaffinity(0)),),
                insist=insist,
            )
            choice = other.choice if rank == 1 and other.choice is not None else ours
            environment = {**os.environ, **QUIET, **(other.environment if rank == 1 else {})}
            command = [sys.executable, str(RANK), settings.encode(), choice.encode()]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True))
        outputs = [process.communicate(timeout=LONGEST)[0] for process in processes]
        return [json.loads(output.splitlines()[-1]) for output in outputs]

    return begin


def test_ranks_that_all_can_use_oneccl(join: Join) -> None:
    found = join(Different())
    assert [answer["backend"] for answer in found] == ["ccl", "ccl"], found


@pytest.mark.parametrize(
    ("other", "words"),
    [
        pytest.param(Different(MISSING), "rank 1: oneCCL is not installed", id="no oneCCL there"),
        pytest.param(
            Different(environment={"FI_TCP_IFACE": "nope0"}),
            "rank 1: FI_TCP_IFACE is nope0, which does not exist here",
            id="an interface that does not exist",
        ),
        pytest.param(
            Different(environment={"CCL_WORKER_AFFINITY": "4095"}),
            "rank 1: CCL_WORKER_AFFINITY is 4095: core 4095 is not one of this machine's or container's",
            id="a worker's core outside the cpuset",
        ),
        pytest.param(
            Different(Choice("ccl", "passed a test", OURS, "/nonexistent/cpufinetune_ccl.so")),
            "rank 1: the oneCCL backend does not load",
            id="a backend that does not load",
        ),
        pytest.param(
            Different(environment={"CCL_ROOT": "/nonexistent"}),
            "rank 1: CCL_ROOT leads to /nonexistent, which has no lib/libccl.so.1",
            id="a CCL_ROOT that leads nowhere",
        ),
        pytest.param(
            Different(environment={"BREAK": "group"}),
            "rank 1: no more threads for",
            id="a group that fails on one rank",
        ),
        pytest.param(
            Different(environment={"BREAK": "sum"}),
            "rank 1: all-reduce gave 1 instead of 3",
            id="a sum that is wrong on one rank",
        ),
    ],
)
def test_one_rank_that_cannot_takes_all_to_gloo(join: Join, other: Different, words: str) -> None:
    found = join(other)
    assert [answer["backend"] for answer in found] == ["gloo", "gloo"], found
    assert all(answer["reason"].startswith(words) for answer in found), found
    assert all(float(answer["seconds"]) < LIMIT for answer in found), found


def test_a_job_that_insists_on_oneccl_fails_with_the_reason(join: Join) -> None:
    found = join(Different(MISSING), insist=True)
    words = "BackendFailed: spec.node.backend is CCL: rank 1: oneCCL is not installed"
    assert [answer["reason"] for answer in found] == [words] * 2


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCL_ROOT", "/nonexistent")


@pytest.mark.parametrize("wanted", ["Auto", "CCL"])
@pytest.mark.usefixtures("_nowhere")
def test_a_run_without_oneccl_says_so(
    wanted: str, small_model: Path, small_data: Path, document: Any, start: Any
) -> None:
    job = document(small_model, small_data, training={"maxSteps": 2}, nodes=2, node={"backend": wanted, "ranks": 1})
    run = start(job, name=wanted)
    words = "CCL_ROOT leads to /nonexistent, which has no lib/libccl.so.1"
    if wanted == "CCL":
        assert run.end() == 2, run.log
        assert f"spec.node.backend is CCL: {words}" in run.log
        assert "point CCL_ROOT at a oneCCL installation, or unset it" in run.log
        assert "preparing" not in run.log, "it could be told before"
    else:
        assert run.end() == 0, run.log
        assert run.report["setup"]["backend"] == "gloo"
        assert run.report["setup"]["backendReason"].startswith(words)
