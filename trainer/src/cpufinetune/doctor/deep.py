"""Starts the probe and reads what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cpufinetune.cores import thread_environment

if TYPE_CHECKING:
    from cpufinetune.cores import RankLayout

LONGEST = 180.0  # seconds; a cold disk takes a minute to import PyTorch
LAST_WORDS = 300  # characters

Findings = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Probed:
    """What each trial found, by name; the trial during which the probe ended, and how. Both empty if it did not."""

    findings: Findings = field(default_factory=dict)
    during: str = ""
    death: str = ""


def probe(rank: RankLayout, seconds: float = LONGEST) -> Probed:
    """Run the probe as the rank would run: on its cores, with its number of threads."""
    command = [sys.executable, "-P", "-m", "cpufinetune.doctor.probe", ",".join(map(str, rank.cpus))]
    environ = {**os.environ, **thread_environment(rank)}
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, env=environ, capture_output=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as expired:
        return parse((expired.stdout or b"").decode(errors="replace"), f"it took more than {seconds:.0f} s")
    except OSError as error:
        return Probed(death=f"it did not start: {error}")
    death = how_it_ended(done.returncode, done.stderr.decode(errors="replace"))
    return parse(done.stdout.decode(errors="replace"), death)


def how_it_ended(status: int, errors: str) -> str:
    """Say how a process ended and what it said last; empty if it went well."""
    if status == 0:
        return ""
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    said = (errors.strip().splitlines() or [""])[-1][-LAST_WORDS:]
    return f"{how}: {said}" if said else how


def parse(text: str, death: str) -> Probed:
    """Read the probe's lines; the last may be half a line."""
    findings: Findings = {}
    during = ""
    for line in text.splitlines():
        try:
            message = dict(json.loads(line))
            name = str(message.pop("trial"))
        except (ValueError, TypeError, KeyError):
            continue
        if message.pop("done", False):
            findings[name] = message
        during = "" if name in findings else name
    return Probed(findings, during, death)
