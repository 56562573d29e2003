"""The number of ranks is a speed knob: losses do not depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 40
TOLERANCE = 1e-4  # relative, at every step
# Training multiplies the rounding of a sum, which nobody can order alike for 1 and 4 ranks: by 10 in 5 steps at a rate
# of 5e-4, which no longer tells a mistake from chaos. At a usual fine-tuning rate it stays near rounding.
LEARNING_RATE = 5e-5
FIRST_STEPS, FIRST_TOLERANCE = 8, 1e-6
ONE_POINT = 0.01

pytestmark = pytest.mark.timeout(900)


def run_with(start: Any, content: dict[str, Any], nodes: int, ranks: int) -> tuple[list[float], float]:
    content["spec"].update(nodes=nodes, node={"ranks": ranks})
    run = start(content, name=f"{nodes}x{ranks}-{content['spec']['training'].get('dropout')}")
    assert run.end() == 0, run.log
    losses = run.losses()
    assert sorted(losses) == list(range(1, STEPS + 1))
    assert run.report["setup"]["worldSize"] == nodes * ranks
    return [losses[step] for step in sorted(losses)], run.report["result"]["metrics"]["accuracy"]


def worst(losses: list[float], reference: list[float]) -> float:
    return max(abs(one / other - 1) for one, other in zip(losses, reference, strict=True))


@pytest.mark.parametrize(
    ("dropout", "worlds"),
    [
        pytest.param(0.0, [(2, 1), (2, 2)], id="without dropout 1, 2 and 4 ranks agree at every step"),
        pytest.param(None, [(1, 2)], id="with the model's own dropout 1 and 2 ranks agree at every step"),
    ],
)
def test_losses_do_not_depend_on_the_number_of_ranks(  # noqa: PLR0917 - fixtures
    dropout: float | None,
    worlds: list[tuple[int, int]],
    demo: Path,
    small_data: Path,
    document: Callable[..., dict[str, Any]],
    start: Any,
) -> None:
    training: dict[str, Any] = {"maxSteps": STEPS, "evaluateEvery": "Never", "checkpointEvery": 1000}
    training["learningRate"] = LEARNING_RATE
    if dropout is not None:
        training["dropout"] = dropout
    content = document(demo / "minilm", small_data, training=training, task={"maxLength": 48})
    reference, accuracy = run_with(start, content, 1, 1)
    assert reference[-1] < reference[0]
    for nodes, ranks in worlds:
        losses, other = run_with(start, content, nodes, ranks)
        print(f"{nodes} nodes x {ranks} ranks: largest relative difference {worst(losses, reference):.1e}")
        assert worst(losses[:FIRST_STEPS], reference[:FIRST_STEPS]) <= FIRST_TOLERANCE
        assert worst(losses, reference) <= TOLERANCE
        assert abs(other - accuracy) <= ONE_POINT
