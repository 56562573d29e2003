"""The real command on this machine, made unfit in various ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("cpufinetune")
LONGEST_START = 2.0  # seconds
STATUSES = {"ok", "note", "problem"}
OVERRULING = ("OMP_", "MKL_", "OPENBLAS_", "GOMP_", "KMP_", "LD_PRELOAD")


def doctor(*options: str, before: tuple[str, ...] = (), **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(OVERRULING)}
    command = [*before, str(COMMAND), "doctor", *options]
    return subprocess.run(command, env={**inherited, **environ}, capture_output=True, text=True, check=False)


def report(*options: str, before: tuple[str, ...] = (), **environ: str) -> dict[str, Any]:
    """The checks by name, of a run whose exit code says what its report says."""
    done = doctor("--output", "json", *options, before=before, **environ)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["healthy"] else 1), done.stderr
    assert set(found) == {"checks", "healthy"}
    assert all(set(check) == {"name", "status", "value", "cost", "cure"} for check in found["checks"])
    assert {check["status"] for check in found["checks"]} <= STATUSES
    return {check["name"]: check for check in found["checks"]}


def problems(checks: dict[str, Any]) -> list[str]:
    return [name for name, check in checks.items() if check["status"] == "problem"]


def test_the_machine_of_the_tests_is_fit_for_training() -> None:
    done = doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("fit for training; ")
    assert all(line.startswith((*STATUSES, " ")) for line in lines[:-2])
    # A value begins in the same column on all lines.
    assert len({len(line) - len(line.lstrip()) for line in lines[:-2] if line.startswith(" ")}) <= 1


def test_both_ways_to_ask_for_json_agree() -> None:
    one, other = doctor("--json"), doctor("--output", "json")
    assert [check["name"] for check in json.loads(one.stdout)["checks"]] == list(report())
    assert one.returncode == other.returncode


def test_it_answers_at_once() -> None:
    times = []
    for _ in range(3):
        started = time.monotonic()
        doctor()
        times.append(time.monotonic() - started)
    assert min(times) < LONGEST_START


def test_it_imports_no_torch_into_its_process() -> None:
    code = (
        "import sys; from cpufinetune.cli.main import main; main(['doctor', '--json']);"
        " sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_too_many_threads_are_a_problem() -> None:
    checks = report(OMP_NUM_THREADS="4096")
    assert problems(checks) == ["threads"]
    assert checks["threads"]["cure"] == "unset OMP_NUM_THREADS"


def test_it_sees_the_cpus_that_it_may_use() -> None:
    cpu = min(os.sched_getaffinity(0))
    checks = report(before=("taskset", "-c", str(cpu)))
    assert checks["cores"]["value"] == f"1 core: CPUs {cpu}"
    assert problems(report(before=("taskset", "-c", str(cpu)), OMP_NUM_THREADS="2")) == ["threads"]


def test_a_broken_ccl_root_is_a_note_that_names_it(tmp_path: Path) -> None:
    check = report(CCL_ROOT=str(tmp_path))["oneCCL"]
    assert check["status"] == "note"
    assert str(tmp_path) in check["value"]
    assert "CCL_ROOT" in check["cure"]


def test_a_preload_that_is_not_there_is_a_note() -> None:
    checks = report(LD_PRELOAD="libno-such-allocator.so")
    assert checks["LD_PRELOAD"]["status"] == "note"
    assert problems(checks) == []


@pytest.mark.parametrize(
    ("options", "ranks", "status"),
    [
        pytest.param("ro", "2", "note", id="read-only"),
        pytest.param("size=64m", "2", "note", id="a container's default"),
        pytest.param("size=1g", "2", "ok", id="a large one"),
    ],
)
def test_shared_memory_is_tried(options: str, ranks: str, status: str) -> None:
    if os.geteuid() != 0:
        pytest.fail("run these tests as root: they mount a /dev/shm of their own")
    script = f'mount -t tmpfs -o {options} doctor /dev/shm && exec "$@"'
    checks = report("--ranks", ranks, before=("unshare", "--mount", "sh", "-c", script, "sh"))
    assert checks["shared memory"]["status"] == status


def test_a_network_of_the_loopback_alone_is_a_note() -> None:
    if os.geteuid() != 0:
        pytest.fail("run these tests as root: they make a network namespace")
    checks = report(before=("unshare", "--net"))
    assert (checks["network"]["status"], problems(checks)) == ("note", [])


def test_ranks_must_be_a_number() -> None:
    done = doctor("--ranks", "0")
    assert done.returncode == 2
    assert "neither Auto nor 1 or more" in done.stderr


def test_deep_tries_pytorch_as_a_rank_would_run() -> None:
    cpu = min(os.sched_getaffinity(0))
    checks = report("--deep", before=("taskset", "-c", str(cpu)))
    assert problems(checks) == []
    assert checks["trial: torch"]["value"].endswith("1 thread")
    assert "GFLOP/s on 1 thread" in checks["trial: fp32"]["value"]
    assert "times fp32" in checks["trial: bf16"]["value"]
    assert "trial: oneCCL" in checks
