"""A process that joins a world as a rank does; prints its choice, or what it was refused with."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from cpufinetune.comms import group
from cpufinetune.comms.ccl import backend
from cpufinetune.comms.choice import Choice
from cpufinetune.errors import AttemptError
from cpufinetune.train.settings import RankSettings


def main() -> None:
    """Read settings and this node's choice from the arguments, join, answer in JSON."""
    settings, choice = RankSettings.decode(sys.argv[1]), Choice.decode(sys.argv[2])
    choice.write(Path(settings.scratch))
    _break(os.environ.get("BREAK", ""))
    # What is timed is the joining, not the imports, the other rank's neither.
    _meet(Path(settings.scratch), settings.world_size)
    started = time.monotonic()
    try:
        found = group.join(settings)
        answer = {"backend": found.backend, "reason": found.reason}
    except AttemptError as error:
        answer = {"backend": "", "reason": f"{error.reason}: {error.message}"}
    answer["seconds"] = str(time.monotonic() - started)
    print(json.dumps(answer), flush=True)
    group.leave()


def _meet(scratch: Path, size: int) -> None:
    (scratch / "imported").touch()
    while len(list(scratch.parent.glob("*/imported"))) < size:
        time.sleep(0.01)


def _break(what: str) -> None:
    """Let the first group fail on this rank alone: when its backend has been made, or at its first sum."""
    if what == "group":
        real = backend._creator

        def creator(module: Any) -> Any:
            def create(*arguments: Any) -> Any:
                made = real(module)(*arguments)
                raise RuntimeError(f"no more threads for {type(made).__name__}")

            return create

        backend._creator = creator
    elif what == "sum":
        prove = group.verify

        def wrong(rank: int, world_size: int) -> None:
            group.verify = prove
            prove(rank, world_size)
            raise AttemptError("WrongSum", "all-reduce gave 1 instead of 3")

        group.verify = wrong


if __name__ == "__main__":
    main()
