"""DistributedDataParallel learns the same over oneCCL as over gloo."""

from __future__ import annotations

from typing import Any

import pytest

TOLERANCE = 1e-6


@pytest.mark.parametrize(
    ("hook", "unused"),
    [
        pytest.param(False, False, id="plain"),
        pytest.param(True, False, id="bf16_compress_hook"),
        pytest.param(False, True, id="find_unused_parameters"),
    ],
)
def test_losses_are_those_of_gloo(world: Any, *, hook: bool, unused: bool) -> None:
    for ours, theirs in world.call("training.compare", hook=hook, unused=unused):
        assert ours[-1] < ours[0]
        if world.size == 2:
            # Two numbers have one sum.
            assert ours == theirs
        elif hook:
            # Gloo rounds every addition to bfloat16, oneCCL one sum.
            assert ours == pytest.approx(theirs, rel=1e-2)
        else:
            assert ours == pytest.approx(theirs, rel=TOLERANCE)
