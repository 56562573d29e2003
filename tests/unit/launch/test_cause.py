from __future__ import annotations

import json
import signal
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, Literal

import pytest

from cpufinetune.errors import ExitCode
from cpufinetune.launch.cause import STRENGTH, Cause, of_exit, root
from cpufinetune.report.events import Failure

if TYPE_CHECKING:
    from collections.abc import Callable


def failure(kind: Literal["Permanent", "Retryable"] = "Retryable") -> Failure:
    return Failure(rank=3, time=1.0, kind=kind, reason="MissingColumn", message="no column 'x'", fix="add it")


@pytest.mark.parametrize(
    ("status", "last_words", "kind", "code", "text"),
    [
        pytest.param(-9, None, "Signal", 137, "Killed: SIGKILL (out of memory, or killed by hand)", id="SIGKILL"),
        pytest.param(-11, None, "Signal", 139, "Killed: SIGSEGV (a crash)", id="SIGSEGV"),
        pytest.param(-9, failure(), "Signal", 137, "Killed: SIGKILL (out of", id="SIGKILL whatever was said before"),
        pytest.param(
            -(signal.SIGRTMIN + 1), None, "Signal", 129 + signal.SIGRTMIN, "Killed: ", id="a signal without a name"
        ),
        pytest.param(ExitCode.INTERRUPTED, None, "Interrupted", 143, "Interrupted: asked to stop", id="interrupted"),
        pytest.param(1, None, "Exit", 1, "Exited: exit code 1", id="an exit without last words"),
        pytest.param(2, None, "Exit", 2, "Exited: exit code 2", id="even with the code of bad input"),
        pytest.param(
            75, failure(), "Exit", 75, "MissingColumn: no column 'x' (add it)", id="an exit with a retryable failure"
        ),
        pytest.param(
            2, failure("Permanent"), "Permanent", 2, "MissingColumn: no column 'x' (add it)", id="a permanent failure"
        ),
    ],
)
def test_an_exit_is_explained(status: int, last_words: Failure | None, *, kind: str, code: int, text: str) -> None:
    cause = of_exit(1, 3, status, last_words, now=5.0)
    assert (cause.kind, cause.code, cause.node, cause.rank, cause.time) == (kind, code, 1, 3, 5.0)
    assert str(cause).startswith(f"rank 3 on node 1: {text}")


def test_a_cause_without_rank_is_the_nodes(cause: Callable[..., Cause]) -> None:
    assert str(cause("NodeLost", 2, message="its launcher is gone")) == "node 2: NodeLost: its launcher is gone"


@pytest.mark.parametrize(("stronger", "weaker"), list(pairwise(STRENGTH)))
def test_the_root_is_the_strongest_cause_whenever_noticed(
    cause: Callable[..., Cause], stronger: str, weaker: str
) -> None:
    late, early = cause(stronger, time=2.0), cause(weaker, time=1.0)
    assert root([early, late]) == root([late, early]) == late


def test_of_equals_the_earliest_is_the_root(cause: Callable[..., Cause]) -> None:
    causes = [cause("Signal", node, time=float(10 - node)) for node in range(3)]
    assert {root(order).node for order in permutations(causes)} == {2}


def test_a_cause_survives_the_wire(cause: Callable[..., Cause]) -> None:
    sent = cause("Signal", 1, rank=3, code=137, fix="more memory")
    assert Cause.read(json.loads(json.dumps(sent.document()))) == sent
