from __future__ import annotations

from typing import Any

import pytest

from cpufinetune.job.document import Training
from cpufinetune.train.schedule import learning_rate


def rates(steps: int = 5, **changes: Any) -> list[float]:
    values: dict[str, Any] = {"learning_rate": 1.0, "warmup_ratio": 0.0, "schedule": "Linear"}
    training = Training(**values | changes)
    return [learning_rate(training, step, steps) for step in range(steps)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [1.0, 0.8, 0.6, 0.4, 0.2], id="linear goes down to one step above zero"),
        pytest.param({"schedule": "Constant"}, [1.0] * 5, id="constant stays"),
        pytest.param(
            {"schedule": "Cosine", "steps": 4}, [1.0, 0.853553, 0.5, 0.146447], id="cosine is half way down half way"
        ),
        pytest.param({"warmup_ratio": 0.4}, [1 / 3, 2 / 3, 1.0, 2 / 3, 1 / 3], id="warm-up climbs in equal steps"),
        pytest.param(
            {"warmup_ratio": 0.21, "schedule": "Constant"}, [1 / 3, 2 / 3, 1, 1, 1], id="warm-up is rounded up"
        ),
        pytest.param(
            {"warmup_ratio": 0.5, "schedule": "Cosine", "steps": 4}, [1 / 3, 2 / 3, 1.0, 0.5], id="cosine after warm-up"
        ),
        pytest.param({"warmup_ratio": 1.0, "steps": 3}, [0.25, 0.5, 0.75], id="nothing but warm-up"),
        pytest.param({"warmup_ratio": 0.06, "steps": 1}, [0.5], id="one step is warm-up"),
        pytest.param({"learning_rate": 2e-5, "steps": 2}, [2e-5, 1e-5], id="the rate scales it all"),
    ],
)
def test_the_rate_follows_the_schedule(changes: dict[str, Any], expected: list[float]) -> None:
    assert rates(**changes) == pytest.approx(expected, abs=1e-6 * expected[0])


@pytest.mark.parametrize("schedule", ["Linear", "Cosine", "Constant"])
def test_the_rate_never_vanishes_nor_exceeds_the_peak(schedule: str) -> None:
    found = rates(1000, schedule=schedule, warmup_ratio=0.06)
    assert max(found) == 1.0
    assert min(found) > 0
    assert found.index(1.0) == 60


@pytest.mark.parametrize("schedule", ["Linear", "Cosine"])
def test_the_end_of_the_schedule_is_zero(schedule: str) -> None:
    training = Training(learning_rate=1.0, schedule="Linear" if schedule == "Linear" else "Cosine")
    assert learning_rate(training, 100, 100) == pytest.approx(0.0)
