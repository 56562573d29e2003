"""Counting failed attempts, and one too many."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator.model import Exit, PodView, Report
from cpufinetune_operator.plan import restart

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.operator.conftest import Make

OLD = {"rank": 1, "lastExit": {"reason": "Killed", "code": 137, "message": "old", "time": "2026-01-02T11:00:00Z"}}
DEATHS: dict[str, tuple[int, str, float, bool]] = {
    "out of memory": (137, "OOMKilled", 1, True),
    "a crash": (1, "Error", 1, True),
    "waiting for peers in vain": (75, "Error", 1, False),
    "an eviction": (143, "Error", 1, False),
    "a park that was ended": (0, "Completed", 1, False),
    "a death that was counted": (137, "OOMKilled", 3600, False),
}


@pytest.mark.parametrize(("code", "reason", "ago", "counts"), DEATHS.values(), ids=DEATHS)
def test_an_attempt_failed_by(code: int, reason: str, ago: float, counts: bool, make: Make) -> None:  # noqa: FBT001
    status = make.running_status(restarts=1, ranks=[OLD])
    pod = make.pod(exit=make.exit(code, "some\nlast line\n", reason=reason, ago=ago))
    tally = restart.tally(make.active(status=status, pods=(pod,)))
    assert (tally.restarts, tally.fresh) == ((2, True) if counts else (1, False))


SPARED: dict[str, dict[str, Any]] = {
    "a pod that is deleted": {"deleting": True},
    "a lost node": {"disruption": "NodeLost"},
}


@pytest.mark.parametrize("fields", SPARED.values(), ids=SPARED)
def test_no_attempt_failed_by(fields: dict[str, Any], make: Make) -> None:
    pod = make.pod(exit=make.exit(137), **fields)
    assert restart.tally(make.active(pods=(pod,))).restarts == 0


def test_launchers_that_die_together_failed_one_attempt(make: Make) -> None:
    pods = tuple(make.pod(index, exit=make.exit(137, ago=1 + index)) for index in range(2))
    first = restart.tally(make.active("nodes=2", pods=pods[1:]))
    assert first.restarts == 1
    status = make.running_status(restarts=1, ranks=[dict(rank) for rank in first.ranks])
    assert restart.tally(make.active("nodes=2", status=status, pods=pods)).restarts == 1


SAID: dict[str, tuple[int, int | None, int]] = {
    "as many as are written": (2, 2, 2),
    "more": (2, 5, 5),
    "fewer, for it has begun anew": (4, 1, 4),
    "nothing": (3, None, 3),
}


@pytest.mark.parametrize(("written", "said", "expected"), SAID.values(), ids=SAID)
def test_node_0_counts(written: int, said: int | None, expected: int, make: Make) -> None:
    observed = make.active(status=make.running_status(restarts=written), report=Report(restarts=said))
    assert restart.tally(observed).restarts == expected


def test_a_death_that_node_0_counted_as_well_is_one(make: Make) -> None:
    pod = make.pod(1, exit=make.exit(137, reason="OOMKilled"))
    assert restart.tally(make.active("nodes=2", pods=(make.pod(0), pod), report=Report(restarts=1))).restarts == 1


def test_a_death_is_kept_with_its_cause(make: Make) -> None:
    status = make.running_status(ranks=[OLD], layout={"ranks": 2})
    pod = make.pod(1, node="worker-b", exit=make.exit(1, "Traceback\nImportError: torch\n"))
    tally = restart.tally(make.active("nodes=2", status=status, pods=(pod,)))
    assert tally.ranks == (
        OLD,
        {
            "rank": 2,
            "node": "worker-b",
            "lastExit": {"reason": "Error", "code": 1, "message": "ImportError: torch", "time": make.stamp(-1)},
        },
    )
    assert tally.cause == "rank 2 on worker-b ended with Error (exit code 1): ImportError: torch"


def test_a_launcher_that_explains_itself_is_quoted(make: Make) -> None:
    failure = {"reason": "ScratchNotWritable", "message": "no space left", "fix": ""}
    pod = make.pod(exit=make.exit(75, make.word(75, failure=failure)))
    (rank,) = restart.tally(make.active(pods=(pod,))).ranks
    assert (rank["lastExit"]["reason"], rank["lastExit"]["message"]) == ("ScratchNotWritable", "no space left")


def test_out_of_memory_says_what_to_do(make: Make) -> None:
    pod = make.pod(exit=make.exit(137, reason="OOMKilled"))
    assert "raise node.memory" in restart.tally(make.active(pods=(pod,))).cause


def test_the_newest_exit_is_the_cause_whoever_reported_it(make: Make) -> None:
    newer = {"rank": 3, "lastExit": {"reason": "Stalled", "time": make.stamp(-1)}}
    observed = make.active(status=make.running_status(ranks=[OLD]), report=Report(restarts=2, ranks=(newer,)))
    assert restart.tally(observed).reason == "Stalled"


def test_ranks_stay_within_what_the_status_holds(make: Make) -> None:
    ranks = tuple({"rank": number} for number in range(1000))
    assert len(restart.tally(make.active(report=Report(ranks=ranks))).ranks) == restart.MOST_RANKS


LIMITS = {"as many as allowed": (2, False), "one more": (3, True)}


@pytest.mark.parametrize(("restarts", "over"), LIMITS.values(), ids=LIMITS)
def test_a_limit_of_two_with(restarts: int, over: bool, make: Make) -> None:  # noqa: FBT001
    observed = make.active("runPolicy.backoffLimit=2", status=make.running_status(restarts=restarts))
    ended = restart.exceeded(observed, restart.tally(observed))
    assert (ended is not None) is over
    if ended:
        assert (ended.type, ended.reason) == ("Failed", "BackoffLimitExceeded")


def test_a_tally_of_what_is_written_counts_nothing_new(make: Make) -> None:
    status = make.running_status(restarts=3, attempt=4, ranks=[OLD])
    tally = restart.recorded(status)
    assert (tally.restarts, tally.attempt, tally.ranks, tally.fresh) == (3, 4, (OLD,), False)


def launcher(make: Make, end: Exit) -> PodView:
    return make.pod(exit=end)


WORDS: dict[str, Callable[[Make], str]] = {
    "a last word": lambda make: make.word(1),
    "a last word of success": lambda make: make.word(0),
}


@pytest.mark.parametrize("message", WORDS.values(), ids=WORDS)
def test_an_end_that_the_gang_agreed_on_is_no_death(message: Callable[[Make], str], make: Make) -> None:
    assert restart.died(launcher(make, make.exit(1, message(make))), make.uid) is None


def test_hostile_messages_stay_short(make: Make) -> None:
    pod = make.pod(exit=make.exit(1, "x" * 8000))
    assert len(json.dumps(restart.tally(make.active(pods=(pod,))).ranks)) < 500
