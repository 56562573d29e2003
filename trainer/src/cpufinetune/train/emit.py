"""How a rank talks to its launcher: events down one pipe, every one also a heartbeat."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpufinetune.report.events import Event, Heartbeat, Phase, PhaseName, Resources, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

# A rank is forked: it inherits what imports have allocated, but of the libraries' files it maps in only what it
# touches, which came to 70 MiB of 300 MiB in training.
LIBRARIES = 70 << 20
BEAT_SECONDS = 2.0


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

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Show life while something without progress of its own goes on: a download that has time limits itself."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(BEAT_SECONDS):
                self.send(Heartbeat)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

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
