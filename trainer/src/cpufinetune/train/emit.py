"""How a rank talks to its launcher: events down one pipe, every one also a heartbeat."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpufinetune.report.events import Event, Phase, PhaseName, Resources, encode

PAGE = os.sysconf("SC_PAGE_SIZE")


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
    status = Path("/proc/self/status").read_text(encoding="ascii")
    values = dict(line.split(":", 1) for line in status.splitlines())
    peak, now = (int(values[key].split()[0]) << 10 for key in ("VmHWM", "VmRSS"))
    return peak, now
