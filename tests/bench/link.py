"""Two network namespaces joined by a cable of limited speed, and processes in them. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDRESSES = ("10.231.77.1", "10.231.77.2")
INTERFACE = "cft-cable"
# What the cable's queue holds, in time: more would be a delay that no switch has.
LATENCY = "20ms"
BURST = "256kb"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextlib.contextmanager
def cable(megabits: int | None) -> Iterator[list[str]]:
    """Yield the names of two namespaces joined by a cable.

    Args:
        megabits: speed in each direction, by a token bucket; None for as fast as the kernel copies.
    """
    names = [f"cft-bench-{os.getpid()}-{end}" for end in range(2)]
    ends = [f"cft{os.getpid() % 100000}{end}" for end in "ab"]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, address in zip(names, ends, ADDRESSES, strict=True):
            _run("ip", "link", "set", end, "netns", name, "name", INTERFACE)
            inside = ("ip", "-n", name)
            _run(*inside, "address", "add", f"{address}/24", "dev", INTERFACE)
            _run(*inside, "link", "set", "lo", "up")
            _run(*inside, "link", "set", INTERFACE, "up")
            if megabits is not None:
                shape = ("rate", f"{megabits}mbit", "burst", BURST, "latency", LATENCY)
                _run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", INTERFACE, "root", "tbf", *shape)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)  # noqa: S607


def inside(name: str) -> list[str]:
    """Return the words that put a command into a namespace."""
    return ["ip", "netns", "exec", name]
