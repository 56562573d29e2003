"""The same death is counted once, whatever is reported, and however often one looks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator.model import Observed, Report
from cpufinetune_operator.plan import restart

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.operator.conftest import Make

    from cpufinetune_operator.plan.restart import Tally

Rank = dict[str, Any]


def ended(make: Make, number: int, ago: float, reason: str = "Killed") -> Rank:
    return {"rank": number, "lastExit": {"reason": reason, "time": make.stamp(-ago)}}


def written(observed: Observed, count: Tally) -> Observed:
    """The same again, but for the status that the tally led to."""
    ranks = [dict(rank) for rank in count.ranks]
    counted = {"attempt": count.attempt, "restarts": count.restarts, "ranks": ranks}
    return replace(observed, job=replace(observed.job, status={**observed.job.status, **counted}))


def two_nodes(make: Make, ago: float, **status: Any) -> Observed:
    """Node 1 was killed so long ago."""
    pods = (make.pod(0), make.pod(1, restart_count=1, exit=make.exit(137, reason="OOMKilled", ago=ago)))
    return make.active("nodes=2", status=make.running_status(**status), pods=pods)


def stale_report(make: Make) -> Observed:
    first = ended(make, 0, 100)
    status = make.running_status(restarts=1, attempt=2, ranks=[first])
    pod = make.pod(restart_count=1, exit=make.exit(137, reason="OOMKilled", ago=1))
    return make.active(status=status, pods=(pod,), report=Report(restarts=1, attempt=2, ranks=(first,)))


def clock_behind(make: Make) -> Observed:
    return replace(two_nodes(make, 1), report=Report(restarts=1, ranks=(ended(make, 1, 11),)))


def clock_behind_and_written(make: Make) -> Observed:
    rank = ended(make, 1, 11)
    return replace(two_nodes(make, 1, restarts=1, ranks=[rank]), report=Report(restarts=1, ranks=(rank,)))


def clock_ahead(make: Make) -> Observed:
    rank = ended(make, 1, -9)
    return replace(two_nodes(make, 1, restarts=1, ranks=[rank]), report=Report(restarts=1, ranks=(rank,)))


def many_ranks(make: Make) -> Observed:
    ranks = [ended(make, number, 1000) for number in range(300)]
    status = make.running_status(restarts=1, attempt=2, ranks=ranks[:256], layout={"ranks": 290})
    return replace(two_nodes(make, 1, **status), report=Report(restarts=1, ranks=tuple(ranks)))


def reported(make: Make) -> Observed:
    return replace(two_nodes(make, 3), report=Report(restarts=1, ranks=(ended(make, 1, 2),)))


def node_0_itself(make: Make) -> Observed:
    pod = make.pending(restart_count=1, exit=make.exit(137, reason="OOMKilled"))
    return make.active(status=make.running_status(), pods=(pod,))


def no_times(make: Make) -> Observed:
    rank = {"rank": 1, "lastExit": {"reason": "Killed"}}
    return replace(two_nodes(make, 1), report=Report(restarts=0, ranks=(rank,)))


OBSERVED: dict[str, tuple[Callable[[Make], Observed], int]] = {
    "a second death, and a report from before it": (stale_report, 2),
    "a report by a clock that is 10 s behind": (clock_behind, 1),
    "the same, written before the pod was heard of": (clock_behind_and_written, 1),
    "a report by a clock that is 10 s ahead": (clock_ahead, 1),
    "300 ranks that ended before": (many_ranks, 2),
    "a report that counts it already": (reported, 1),
    "node 0 itself": (node_0_itself, 1),
    "a report that knows no times": (no_times, 1),
}


@pytest.mark.parametrize(("build", "restarts"), OBSERVED.values(), ids=OBSERVED)
def test_a_death_is_counted_once_with(build: Callable[[Make], Observed], restarts: int, make: Make) -> None:
    observed = build(make)
    first = restart.tally(observed)
    assert first.restarts == restarts
    for _ in range(3):
        observed = written(observed, first)
        again = restart.tally(observed)
        assert (again.restarts, again.attempt, again.ranks) == (first.restarts, first.attempt, first.ranks)
        assert not again.fresh
    for report in (None, Report(), Report(restarts=first.restarts)):
        assert restart.tally(replace(observed, report=report)).restarts == first.restarts


def test_a_death_that_node_0_reported_long_ago_is_another_one(make: Make) -> None:
    rank = ended(make, 1, 11 + restart.SKEW_SECONDS)
    observed = replace(two_nodes(make, 1, restarts=1, ranks=[rank]), report=Report(restarts=1, ranks=(rank,)))
    assert restart.tally(observed).restarts == 2


def test_of_too_many_ranks_the_newest_are_kept(make: Make) -> None:
    ranks = tuple(ended(make, number, 1000 - number) for number in range(300))
    kept = restart.tally(make.active(report=Report(restarts=1, ranks=ranks))).ranks
    assert [rank["rank"] for rank in kept] == list(range(44, 300))


def test_a_job_whose_report_is_stale_does_not_run_out_of_attempts(make: Make) -> None:
    world = make.running("runPolicy.backoffLimit=6", polling=True)
    first = ended(make, 0, 100)
    world.report = Report(state="Training", restarts=1, attempt=2, ranks=(first,))
    world.look()
    world.pods = (make.pod(restart_count=1, exit=make.exit(137, reason="OOMKilled")),)
    world.look()
    assert (world.job.status["restarts"], world.job.status["phase"]) == (2, "Running")
