from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from cpufinetune.report import Failure, Heartbeat, Phase, Progress, Resources

if TYPE_CHECKING:
    from tests.unit.report.conftest import Run


def test_nothing_is_known_before_the_first_event(run: Run) -> None:
    state = run.state
    assert (state["attempt"], state["restarts"], state["step"]) == (1, 0, 0)
    unknown = ("phase", "totalSteps", "loss", "metric", "samplesPerSecond", "paddingShare", "etaSeconds")
    assert [state[name] for name in unknown] == [None] * len(unknown)
    assert state["ranks"] == []
    json.dumps(run.progress.record(), allow_nan=False)


def test_a_running_job_shows_the_shape_of_its_status(run: Run) -> None:
    run.begin()
    run.train(1, 20)
    run.evaluate(20)
    state = run.state
    assert (state["phase"], state["step"], state["totalSteps"], state["epoch"]) == ("Train", 20, 100, 0.2)
    assert (state["loss"], state["metric"], state["metricName"]) == (1.0, 0.75, "accuracy")
    assert state["lastHeartbeatTime"] == "2023-11-14T22:13:50Z"


def test_rates_are_sums_over_all_ranks(run: Run) -> None:
    run.begin()
    run.train(1, 10, seconds=0.5, communication_seconds=0.1)
    state = run.state
    assert state["samplesPerSecond"] == pytest.approx(64)
    assert state["tokensPerSecond"] == pytest.approx(3600)
    assert state["communicationShare"] == pytest.approx(0.2)
    assert state["imbalance"] == pytest.approx(1)


def test_the_window_slides(run: Run) -> None:
    run.begin()
    run.train(1, 40, seconds=2.0)
    run.train(41, 70, seconds=1.0)
    assert run.state["samplesPerSecond"] == pytest.approx(32)


def test_an_evaluation_does_not_slow_the_rates(run: Run) -> None:
    run.begin()
    run.train(1, 10)
    before = run.state["samplesPerSecond"]
    run.phase("Evaluate")
    run.evaluate(10, seconds=600.0)
    run.phase("Train")
    run.train(11, 12)
    assert run.state["samplesPerSecond"] == pytest.approx(before)


def test_a_step_counts_once_all_ranks_have_told_their_share(run: Run) -> None:
    run.begin()
    run.apply(run.share(1, rank=0), run.share(2, rank=0))
    assert run.state["samplesPerSecond"] is None
    run.apply(run.share(1, rank=1))
    assert run.state["samplesPerSecond"] == pytest.approx(32)


def test_the_slowest_rank_sets_the_pace_and_shows_as_imbalance(run: Run) -> None:
    run.begin()
    run.apply(run.share(1, rank=0, seconds=2.0, communication_seconds=1.0), run.share(1, rank=1, seconds=4.0))
    state = run.state
    assert state["samplesPerSecond"] == pytest.approx(8)
    assert state["imbalance"] == pytest.approx(3.75 / ((1.0 + 3.75) / 2))


def test_padding_is_the_share_of_tokens_that_were_added(run: Run) -> None:
    run.begin()
    run.apply(run.share(1, tokens=100, padded_tokens=100), run.share(1, rank=1, tokens=50, padded_tokens=100))
    assert run.state["paddingShare"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("done", "expected"),
    [(2, None), (3, 97), (100, 0)],
    ids=["unknown before the third step", "median times remaining", "nothing remains"],
)
def test_the_eta_follows_the_median_step(run: Run, done: int, expected: int | None) -> None:
    run.begin()
    run.train(1, done)
    assert run.state["etaSeconds"] == expected


def test_one_slow_step_does_not_move_the_eta(run: Run) -> None:
    run.begin()
    run.train(1, 1, seconds=60.0)
    run.train(2, 10)
    assert run.state["etaSeconds"] == 90


@pytest.mark.parametrize(
    ("evaluated", "test_samples", "expected"),
    [
        ((40,), 0, 60 + 2 * 10),
        ((20, 40), 0, 60 + 3 * 10),
        ((0, 40), 0, 60 + 2 * 10),
        ((0,), 0, 60),
        ((20, 40), 200, 60 + 3 * 10 + 5),
    ],
    ids=[
        "one evaluation tells the interval",
        "two tell it better",
        "one before training is no interval",
        "one before training alone tells nothing",
        "the test set goes at validation's pace",
    ],
)
def test_the_eta_counts_the_evaluations_to_come(
    run: Run, evaluated: tuple[int, ...], test_samples: int, expected: int
) -> None:
    run.begin(test_samples=test_samples)
    run.train(1, 40)
    for number in evaluated:
        run.evaluate(number)
    assert run.state["etaSeconds"] == expected


def restarted(run: Run) -> None:
    run.begin()
    run.train(1, 50, loss=2.0)
    run.now += 3
    run.begin(attempt=2, resumed_from_step=40)


def test_a_restart_goes_back_to_the_checkpoint_and_forgets_the_speed(run: Run) -> None:
    restarted(run)
    state = run.state
    assert (state["attempt"], state["restarts"], state["step"]) == (2, 1, 40)
    assert (state["samplesPerSecond"], state["etaSeconds"]) == (None, None)
    run.train(41, 44, seconds=0.5)
    assert run.state["samplesPerSecond"] == pytest.approx(64)
    assert run.state["etaSeconds"] == 28


def test_a_repeated_step_replaces_the_one_before(run: Run) -> None:
    restarted(run)
    run.train(41, 45, loss=1.0)
    history = run.progress.record()["history"]
    assert history["step"] == list(range(1, 51))
    assert history["loss"] == [2.0] * 40 + [1.0] * 5 + [2.0] * 5
    assert history["smoothedLoss"][40] == pytest.approx(1.9)
    assert history["samplesPerSecond"][40] == pytest.approx(32)


def test_a_restart_is_on_record_with_where_it_fell_and_went_on(run: Run) -> None:
    restarted(run)
    record = run.progress.record()
    assert [(each["attempt"], each["reachedStep"], each["resumedFromStep"]) for each in record["restarts"]] == [
        (2, 50, 40)
    ]
    assert record["phaseSeconds"] == {"Start": 0.0, "Train": 50.0, "Restart": 3.0}


def test_late_words_of_a_past_attempt_are_ignored(run: Run) -> None:
    run.begin()
    run.apply(Phase(rank=0, name="Start", attempt=2, time=run.now))
    run.apply(run.share(7, rank=1, tokens=0), Phase(rank=1, name="Train", attempt=1, time=run.now))
    state = run.state
    assert (state["attempt"], state["step"], state["paddingShare"]) == (2, 0, None)
    assert run.progress.record()["history"]["step"] == []


def test_a_failure_is_shown_until_the_next_attempt_and_stays_on_record(run: Run) -> None:
    run.begin()
    run.apply(Failure(rank=1, time=run.now, kind="Retryable", reason="PeerLost", message="rank 0 is gone", fix=""))
    assert run.state["failure"]["reason"] == "PeerLost"
    run.begin(attempt=2)
    assert run.state["failure"] is None
    assert [failure["reason"] for failure in run.progress.record()["failures"]] == ["PeerLost"]


def test_a_launcher_that_joins_late_still_counts_the_restarts() -> None:
    progress = Progress(clock=lambda: 0.0)
    progress.apply(Phase(rank=4, name="Start", attempt=3, time=0.0))
    assert progress.snapshot()["restarts"] == 2
    assert progress.record()["restarts"] == []


def test_a_loss_that_is_nan_is_null_and_leaves_the_smoothed_one(run: Run) -> None:
    run.begin()
    run.train(1, 2, loss=0.5)
    run.train(3, 3, loss=math.nan)
    assert (run.state["loss"], run.state["smoothedLoss"]) == (None, 0.5)
    run.train(4, 4, loss=0.5)
    assert run.state["smoothedLoss"] == pytest.approx(0.5)


def test_memory_keeps_its_peak_over_the_lives_of_a_rank(run: Run) -> None:
    run.begin()
    run.apply(Resources(rank=1, time=run.now, peak_rss_bytes=500, rss_bytes=400))
    run.begin(attempt=2)
    run.apply(Resources(rank=1, time=run.now, peak_rss_bytes=200, rss_bytes=100))
    assert [(rank["peakRssBytes"], rank["rssBytes"]) for rank in run.state["ranks"]] == [(None, None), (500, 100)]


def test_a_heartbeat_is_by_the_clock_of_the_launcher(run: Run) -> None:
    run.begin()
    run.now += 7
    run.apply(Heartbeat(rank=1, time=5.0))
    beats = [rank["lastHeartbeat"] for rank in run.state["ranks"]]
    assert beats[1] - beats[0] == 7


def test_a_world_that_comes_back_smaller_waits_for_no_one(run: Run) -> None:
    run.begin()
    run.train(1, 5)
    run.ranks = 1
    run.begin(attempt=2, world_size=1, resumed_from_step=5)
    run.train(6, 8)
    assert run.state["samplesPerSecond"] == pytest.approx(16)
    assert [rank["rank"] for rank in run.state["ranks"]] == [0]


def test_time_is_booked_on_the_phase_it_was_spent_in(run: Run) -> None:
    run.begin()
    run.train(1, 20)
    run.phase("Evaluate")
    run.now += 10
    run.phase("Train")
    run.train(21, 25)
    assert run.progress.record()["phaseSeconds"] == {"Start": 0.0, "Train": 25.0, "Evaluate": 10.0}


def test_a_result_ends_the_wait(run: Run) -> None:
    run.begin()
    run.train(1, 100)
    run.finish(100)
    state = run.state
    assert (state["phase"], state["etaSeconds"], state["result"]["path"]) == ("Done", 0, "/out/model")
