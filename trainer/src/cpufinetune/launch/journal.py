"""What node 0 remembers of its gang beyond its own life: how attempts ended, how many count, and whether it was killed.

One JSON object a line, beside the checkpoints: a coordinator whose pod is recreated goes on counting where the one
before stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.launch.cause import Cause
from cpufinetune.launch.gang import AttemptRecord
from cpufinetune.report.files import replace_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cpufinetune.errors import ExitCode


@dataclass(frozen=True, slots=True)
class Past:
    """What lives before this one left: `failures` is what `runPolicy.backoffLimit` bounds."""

    records: tuple[AttemptRecord, ...] = ()
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Journal:
    """The file at `path`. What cannot be written is lost: that costs a count, not the run."""

    path: Path

    def read(self, last_attempt: int, now: float) -> Past:
        """Return the past. A life that has no end was killed, which ended its attempt, if there was one.

        Args:
            last_attempt: the last attempt that ranks told of.
            now: the time of a death that is only noticed now.
        """
        records: list[AttemptRecord] = []
        failures, alive = 0, False
        for line in self._lines():
            if "attempt" in line:
                causes = tuple(Cause.read(cause) for cause in line["causes"])
                records.append(AttemptRecord(line["attempt"], causes))
                failures = line["failures"]
            else:
                alive = line.get("life") == "began"
        if alive:
            message = "its launcher was killed: out of memory, evicted by force, or with its machine"
            cause = Cause(kind="NodeLost", node=0, time=now, reason="NodeLost", message=message)
            records.append(AttemptRecord(last_attempt, (cause,)))
            failures += 1
        return Past(tuple(records), failures)

    def begin(self, past: Past) -> None:
        """Write down that a life begins, and what it knows: the file starts over."""
        lines = [_line(record, past.failures) for record in past.records]
        text = "".join(json.dumps(line) + "\n" for line in [*lines, {"life": "began"}])
        with contextlib.suppress(OSError):
            replace_text(self.path, text)

    def add(self, record: AttemptRecord, failures: int) -> None:
        """Write down how an attempt ended and how many failures that makes."""
        self._write(_line(record, failures))

    def end(self, code: ExitCode) -> None:
        """Write down that this life ended as it should."""
        self._write({"life": "ended", "code": int(code)})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError):
                # Cut short by a crash.
                continue


def _line(record: AttemptRecord, failures: int) -> dict[str, Any]:
    causes = [cause.document() for cause in record.causes]
    return {"attempt": record.attempt, "causes": causes, "failures": failures}
