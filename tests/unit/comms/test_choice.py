from typing import Any

import pytest

from cpufinetune.comms.ccl import environment
from cpufinetune.comms.choice import OFFICIAL, OURS, Choice, agree, official, outlook
from cpufinetune.comms.network import Network
from cpufinetune.cores.layout import Layout, RankLayout
from cpufinetune.errors import JobError

CCL = Choice("ccl", "passed a test", OURS, "a.so")
GLOO = Choice("gloo", "oneCCL is not installed")
BOUND = Choice("ccl", "matches", OFFICIAL)


@pytest.mark.parametrize(
    ("choices", "backend", "reason"),
    [
        pytest.param([CCL, CCL], "ccl", "passed a test", id="all can"),
        pytest.param([GLOO, GLOO], "gloo", "oneCCL is not installed", id="none can"),
        pytest.param([CCL, CCL, GLOO], "gloo", "rank 2: oneCCL is not installed", id="one cannot"),
        pytest.param([GLOO, CCL], "gloo", "rank 0: oneCCL is not installed", id="the first cannot"),
        pytest.param([CCL, BOUND], "gloo", "rank 0: the ranks have different bindings", id="different bindings"),
    ],
)
def test_all_ranks_use_what_all_can(choices: list[Choice], backend: str, reason: str) -> None:
    found = agree(choices)
    assert found.backend == backend
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    ("torch", "binding", "expected"),
    [
        pytest.param("2.8.0+cpu", "2.8.0", "ccl", id="made for this torch"),
        pytest.param("2.15.0", "2.8.0", f"{OFFICIAL} 2.8.0 does not match torch 2.15.0", id="made for another"),
        pytest.param("2.15.0", None, f"{OFFICIAL} is not installed", id="not there"),
    ],
)
def test_the_official_binding_must_match_torch(torch: str, binding: str | None, expected: str) -> None:
    found = official(torch, binding)
    assert (found.backend if isinstance(found, Choice) else found) == expected


@pytest.mark.parametrize("wanted", ["Auto", "CCL"])
def test_the_official_binding_needs_no_oneccl_of_ours(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCL_ROOT", "/nonexistent")
    monkeypatch.setattr("cpufinetune.comms.choice.binding_version", lambda: "2.8.0")
    monkeypatch.setattr("cpufinetune.comms.ccl.build.torch_version", lambda: "2.8.0+cpu")
    found = outlook(wanted, 2)
    assert (found.backend, found.binding) == ("ccl", OFFICIAL)
    assert found.reason.startswith(f"{OFFICIAL} 2.8.0 matches torch 2.8.0+cpu; ")


def test_without_oneccl_a_job_that_insists_is_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCL_ROOT", "/nonexistent")
    monkeypatch.setattr("cpufinetune.comms.choice.binding_version", lambda: None)
    assert outlook("Auto", 2).explained.startswith(
        "CCL_ROOT leads to /nonexistent, which has no lib/libccl.so.1; point"
    )
    assert outlook("CCL", 1).backend == "none"
    with pytest.raises(JobError, match=r"spec.node.backend is CCL: CCL_ROOT leads to /nonexistent"):
        outlook("CCL", 2)


def test_a_choice_survives_the_store() -> None:
    assert Choice.decode(BOUND.encode()) == BOUND


@pytest.mark.parametrize(
    ("delay", "rate", "expected"),
    [
        pytest.param(0.3e-3, 110e6, 4, id="1 Gbit/s: as small as allowed"),
        pytest.param(0.2e-3, 2.5e9, 10, id="25 Gbit/s"),
        pytest.param(2e-3, 10e9, 64, id="as large as allowed"),
    ],
)
def test_buckets_are_large_enough_to_hide_the_delay(delay: float, rate: float, expected: int) -> None:
    assert Network(delay, rate).bucket_mib() == expected


@pytest.mark.parametrize(
    ("nodes", "cores", "expected"),
    [
        pytest.param(2, 28, 1, id="many cores"),
        pytest.param(2, 7, 0, id="too few to give one up"),
        pytest.param(1, 28, 0, id="one node: shared memory"),
    ],
)
def test_a_core_is_kept_for_the_worker_where_it_pays(nodes: int, cores: int, expected: int) -> None:
    assert environment.communication_cores(nodes=nodes, cores=cores) == expected


def test_workers_get_the_core_kept_for_them_or_else_the_last() -> None:
    ranks: Any = (RankLayout((0, 1), (2,), 2, 0), RankLayout((3, 4), (), 2, 0))
    assert environment.worker_cpus(Layout(ranks, None, pinned=True, notes=())) == (2, 4)  # type: ignore[arg-type]
