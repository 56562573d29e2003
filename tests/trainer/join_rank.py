"""A process that joins a world as a rank does; prints its choice, or what it was refused with."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from cpufinetune.comms import group
from cpufinetune.comms.choice import Choice
from cpufinetune.errors import AttemptError
from cpufinetune.train.settings import RankSettings


def main() -> None:
    """Read settings and this node's choice from the arguments, join, answer in JSON."""
    settings, choice = RankSettings.decode(sys.argv[1]), Choice.decode(sys.argv[2])
    choice.write(Path(settings.scratch))
    # What is timed is the joining, not the imports.
    started = time.monotonic()
    try:
        found = group.join(settings)
        answer = {"backend": found.backend, "reason": found.reason}
    except AttemptError as error:
        answer = {"backend": "", "reason": f"{error.reason}: {error.message}"}
    answer["seconds"] = str(time.monotonic() - started)
    print(json.dumps(answer), flush=True)
    group.leave()


if __name__ == "__main__":
    main()
