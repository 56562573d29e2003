"""How a rank talks to its launcher: events down one pipe, every one also a heartbeat."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpufinetune.report.events import Event, Phase, PhaseName, Resources, encode

# A rank is forked: it inherits what imports have allocated, but of the libraries' files it maps in only what it
# touches, which came to 70 MiB of 300 MiB in training.
LIBRARIES = 70 << 20


@dataclass(frozen=True, slots=True)
class Emitter:
    """Writes events to `descriptor`; None drops them (a rank started by hand)."""

    descriptor: int | None
    rank: int
    attempt: int

    def send(self, event: type[Event], /, **fields: Any) -> None:
        """Send one event; a launcher that is gone is not this rank's failure."""
        if self.descriptor is None:
            return
        line = encode(event(rank=self.rank, time=time.time(), **fields))
        try:
            while line:
                line = line[os.write(self.descriptor, line) :]
        except BrokenPipeError:
            return

    def warn(self, text: str) -> None:
        """Say something in the log."""
        print(f"warning: {text}", flush=True)  # noqa: T201 - the launcher forwards a rank's output

    def phase(self, name: PhaseName) -> None:
        """Enter a phase."""
        self.send(Phase, name=name, attempt=self.attempt)

    def resources(self) -> None:
        """Report memory."""
        peak, now = memory()
        self.send(Resources, peak_rss_bytes=peak, rss_bytes=now)


def memory() -> tuple[int, int]:
    """Return peak and present resident bytes of this process."""
    values = _status()
    return values["VmHWM"], values["VmRSS"]


def base_memory() -> int:
    """Return the resident bytes that a rank needs before it has a model, called when all is imported and no more."""
    return _status()["RssAnon"] + LIBRARIES


def _status() -> dict[str, int]:
    rows = (line.split() for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines())
    return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows if row[-1] == "kB"}
