from __future__ import annotations

import io
import json
from typing import Any, NoReturn

import pytest

from cpufinetune.cores import Isa
from cpufinetune.doctor import probe
from cpufinetune.doctor.check import Status
from cpufinetune.doctor.checks.deep import examine
from cpufinetune.doctor.deep import Probed, how_it_ended, parse
from cpufinetune.errors import JobError

OK, NOTE, PROBLEM = Status.OK, Status.NOTE, Status.PROBLEM
NATIVE = Isa.from_flags(("avx512_bf16",))
TORCH = {"version": "2.9.1", "seconds": 4.0, "threads": 2}
GOOD: dict[str, dict[str, Any]] = {"torch": TORCH, "fp32": {"gflops": 80.0}, "bf16": {"gflops": 160.0}}


def test_lines_become_findings() -> None:
    lines = ['{"trial": "torch"}', '{"trial": "torch", "seconds": 4.0, "done": true}', "chatter", "[1]", "1", '{"tri']
    assert parse("\n".join(lines), "") == Probed({"torch": {"seconds": 4.0}})


def test_a_trial_without_an_end_is_where_the_process_died() -> None:
    lines = ['{"trial": "torch"}', '{"trial": "torch", "done": true}', '{"trial": "bf16"}']
    assert parse("\n".join(lines), "killed by SIGILL") == Probed({"torch": {}}, "bf16", "killed by SIGILL")


@pytest.mark.parametrize(
    ("status", "errors", "words"),
    [
        (0, "a warning", ""),
        (-4, "", "killed by SIGILL"),
        (1, "Traceback\nImportError: libgomp\n", "exit code 1: ImportError: libgomp"),
    ],
)
def test_the_end_is_told_with_the_last_words(status: int, errors: str, words: str) -> None:
    assert how_it_ended(status, errors) == words


@pytest.mark.parametrize(
    ("findings", "isa", "statuses"),
    [
        pytest.param(GOOD, NATIVE, {"torch": OK, "fp32": OK, "bf16": OK}, id="all well"),
        pytest.param({**GOOD, "bf16": {"gflops": 40.0}}, NATIVE, {"bf16": NOTE}, id="native bf16, but slow"),
        pytest.param({**GOOD, "bf16": {"gflops": 9.0}}, Isa(), {"bf16": OK}, id="emulated bf16 is slow and unused"),
        pytest.param({"torch": {**TORCH, "threads": 1}}, NATIVE, {"torch": NOTE}, id="another number of threads"),
        pytest.param({"torch": {"error": "ImportError: x"}}, NATIVE, {"torch": PROBLEM}, id="torch is broken"),
        pytest.param({"oneCCL": {"error": "no libfabric"}}, NATIVE, {"oneCCL": NOTE}, id="oneCCL does not load"),
        pytest.param({"oneCCL": {"built": True, "name": "a"}}, NATIVE, {"oneCCL": OK}, id="oneCCL loads"),
        pytest.param({"ipex": {"error": "undefined symbol"}}, NATIVE, {"ipex": NOTE}, id="IPEX is broken"),
        pytest.param({"ipex": {"version": "2.9"}}, NATIVE, {"ipex": OK}, id="IPEX works"),
    ],
)
def test_findings_are_judged(findings: dict[str, dict[str, Any]], isa: Isa, statuses: dict[str, Status]) -> None:
    found = {check.name.removeprefix("trial: "): check.status for check in examine(Probed(findings), isa, 2)}
    assert set(found) == set(findings)
    assert found.items() >= statuses.items()


@pytest.mark.parametrize(
    ("probed", "name", "cost"),
    [
        (Probed(GOOD, "ipex", "exit code 127"), "trial: ipex", "whatever imports it"),
        (Probed(GOOD, "oneCCL", "killed by SIGSEGV"), "trial: oneCCL", "ranks that load the backend"),
        (Probed({"torch": TORCH}, "fp32", "killed by SIGILL"), "trial: fp32", "nothing can be trained"),
        (Probed({}, "", "exit code 1: no module"), "trial: end", "nothing can be trained"),
    ],
)
def test_a_death_is_a_problem(probed: Probed, name: str, cost: str) -> None:
    check = examine(probed, NATIVE, 2)[-1]
    assert (check.name, check.status) == (name, PROBLEM)
    assert cost in check.cost


def _exit() -> NoReturn:
    raise SystemExit(127)


def _refuse() -> NoReturn:
    raise JobError("NoOneCcl", "there is none", "install it")


def test_a_trial_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [("a", _exit), ("b", _refuse), ("c", lambda: {"version": "1"})]
    monkeypatch.setattr(probe, "trials", lambda: iter(trials))
    out = io.StringIO()
    probe.run(out)
    assert len([json.loads(line) for line in out.getvalue().splitlines()]) == 2 * len(trials)
    assert parse(out.getvalue(), "").findings == {
        "a": {"error": "SystemExit: 127"},
        "b": {"error": "there is none", "cure": "install it"},
        "c": {"version": "1"},
    }


def test_without_torch_nothing_else_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "trials", lambda: iter([(probe.TORCH, _exit), ("fp32", _exit)]))
    out = io.StringIO()
    probe.run(out)
    assert list(parse(out.getvalue(), "").findings) == [probe.TORCH]
