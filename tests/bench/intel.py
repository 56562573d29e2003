"""Time training steps with and without Intel's extension, turn by turn: `make bench-intel`.

Each turn is a process, since an import of the extension cannot be taken back. All take the same batches of R8.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = ("without", "imported", "with")
TURNS, STEPS, WARM_UP = 3, 12, 3


def turn(way: str, name: str, scratch: str) -> None:
    """Print the seconds of each step, by the clock and of the processors."""
    import profile_step  # noqa: PLC0415 - only turns need PyTorch

    from cpufinetune.train import intel, precision  # noqa: PLC0415

    steps = profile_step.Steps(precision.Chosen(name, "asked for"), Path(scratch))
    if way == "imported":
        intel.load()
    elif way == "with":
        intel.apply(steps.built.model, steps.optimizer)
    found = []
    for step in range(STEPS):
        before = time.process_time()
        seconds = steps.run(step)[2]
        found.append((seconds, time.process_time() - before))
    print(json.dumps(found[WARM_UP:]))


def main() -> None:
    """Print medians over all turns, and those of the turns."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("Float32", "BFloat16"):
            found: dict[str, list[list[list[float]]]] = {way: [] for way in WAYS}
            for _ in range(TURNS):
                for way in WAYS:
                    command = [sys.executable, "-W", "ignore", __file__, way, name, scratch]
                    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                    found[way].append(json.loads(done.stdout.splitlines()[-1]))
            for way, turns in found.items():
                print(f"{name:8}  {way:8}  {figures(turns, 0)}; of the processors {figures(turns, 1)}", flush=True)


def figures(turns: list[list[list[float]]], column: int) -> str:
    """The median of all steps, and of those of each turn."""
    each = ", ".join(f"{1e3 * statistics.median(step[column] for step in steps):.0f}" for steps in turns)
    return f"{1e3 * statistics.median(step[column] for steps in turns for step in steps):.0f} ms a step ({each})"


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else turn(*sys.argv[1:])
