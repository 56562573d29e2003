"""PID 1's duties, by processes that really have children."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LIMIT = 30  # seconds

PARK = """
import os, time
from cpufinetune.launch.park import park
def child(seconds):
    pid = os.fork()
    if pid == 0:
        time.sleep(seconds)
        os._exit(0)
    return pid
print(child(0), child(0.2), child(0.2), flush=True)
park()
print("gone", flush=True)
"""

REAP = """
import asyncio, os, time
from cpufinetune.launch import park
park.REAP_SECONDS = 0.05
def child():
    pid = os.fork()
    if pid == 0: os._exit(7)
    return pid
own, orphan = child(), child()
async def main():
    reaper = asyncio.create_task(park.reap(lambda: [own]))
    while orphan in park.zombies():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    reaper.cancel()
asyncio.run(main())
print(os.waitstatus_to_exitcode(os.waitpid(own, 0)[1]), len(park.zombies()))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_parked_launcher_collects_what_ends_and_goes_when_asked(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        children = [Path("/proc", pid) for pid in process.stdout.readline().split()]
        deadline = time.monotonic() + LIMIT
        while any(child.exists() for child in children):
            assert time.monotonic() < deadline, "zombies are left"
            time.sleep(0.01)
        process.send_signal(number)
        assert process.stdout.read() == "gone\n"
        assert process.wait(LIMIT) == 0


def test_orphans_are_collected_and_those_that_somebody_waits_for_are_not() -> None:
    done = subprocess.run([sys.executable, "-c", REAP], capture_output=True, text=True, check=True, timeout=LIMIT)
    assert done.stdout == "7 0\n"
