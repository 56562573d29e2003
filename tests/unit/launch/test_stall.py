from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cpufinetune.launch.stall import REMEMBERED, SHORTEST, STEPS, UNMEASURED, StallClock
from cpufinetune.report.events import Heartbeat, Phase, Step

if TYPE_CHECKING:
    from cpufinetune.job.document import Auto
    from cpufinetune.report.events import Event, PhaseName


def phase(name: PhaseName = "Train") -> Phase:
    return Phase(rank=0, name=name, attempt=1, time=0.0)


def step(seconds: float) -> Step:
    return Step(
        rank=0, time=0.0, step=1, epoch=0.1, loss=1.0, learning_rate=1e-5, grad_norm=1.0, samples=8, tokens=80,
        padded_tokens=90, seconds=seconds, communication_seconds=0.0, cpu_seconds=1.0,
    )  # fmt: skip


def clock(*events: Event, setting: Auto | int = "Auto") -> StallClock:
    made = StallClock(setting, last=0.0)
    for event in events:
        made.hear(event, 0.0)
    return made


@pytest.mark.parametrize(
    ("events", "allowed"),
    [
        pytest.param([], UNMEASURED, id="nothing heard yet"),
        pytest.param([phase("Prepare"), Heartbeat(rank=0, time=0.0)], UNMEASURED, id="preparing"),
        pytest.param([phase("Train")], UNMEASURED, id="the first step"),
        pytest.param([phase("Train"), step(0.1)], SHORTEST, id="quick steps have the shortest limit"),
        pytest.param([phase("Train"), step(10.0)], 10 * STEPS, id="slow steps have a multiple of a step"),
        pytest.param([phase("Train"), step(90.0), step(10.0), step(11.0)], 11 * STEPS, id="of the median step"),
        pytest.param([phase("Train"), step(10.0), phase("Evaluate")], 10 * STEPS, id="evaluating is training"),
        pytest.param([phase("Train"), step(10.0), phase("Checkpoint")], UNMEASURED, id="writing a checkpoint"),
        pytest.param([phase("Train"), step(10.0), phase("Save")], UNMEASURED, id="saving"),
        pytest.param(
            [phase("Train"), step(10.0), phase("Checkpoint"), phase("Train")], 10 * STEPS, id="back from a checkpoint"
        ),
        pytest.param(
            [phase("Train"), *[step(50.0)] * REMEMBERED, *[step(5.0)] * REMEMBERED], 5 * STEPS, id="old steps fade"
        ),
    ],
)
def test_auto_allows_silence_by_phase_and_step(events: list[Event], allowed: float) -> None:
    assert clock(*events).allowed() == allowed


@pytest.mark.parametrize(
    ("events", "allowed"),
    [
        pytest.param([], UNMEASURED, id="not before training"),
        pytest.param([phase("Save")], UNMEASURED, id="not while saving"),
        pytest.param([phase("Checkpoint")], UNMEASURED, id="nor at a checkpoint"),
        pytest.param([phase("Train")], 7, id="from the start of training"),
        pytest.param([phase("Train"), step(10.0)], 7, id="whatever steps take"),
        pytest.param([phase("Evaluate")], 7, id="in evaluations too"),
    ],
)
def test_a_number_holds_while_training(events: list[Event], allowed: float) -> None:
    assert clock(*events, setting=7).allowed() == allowed


@pytest.mark.parametrize(("now", "stalled"), [(0.0, False), (60.0, False), (60.1, True)])
def test_a_rank_is_stalled_once_the_silence_is_too_long(now: float, *, stalled: bool) -> None:
    assert clock(phase("Train"), setting=60).stalled(now) == stalled


def test_every_event_is_a_sign_of_life() -> None:
    heard = clock(phase("Train"), setting=60)
    events: list[Event] = [Heartbeat(rank=0, time=0.0), phase("Evaluate"), step(1.0)]
    for number, event in enumerate(events, 1):
        heard.hear(event, 50.0 * number)
        assert not heard.stalled(50.0 * number + 60)
        assert heard.stalled(50.0 * number + 61)
