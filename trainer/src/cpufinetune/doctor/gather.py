"""Gathers all facts about this machine, process and installation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.cores.cgroup import read_text
from cpufinetune.doctor import kernel, network, software
from cpufinetune.doctor.facts import Facts, Process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpufinetune.cores import Auto


def gather(environ: Mapping[str, str] = os.environ, ranks: int | Auto = "Auto") -> Facts:
    """Read everything; it takes a fraction of a second and leaves nothing behind."""
    return Facts(
        kernel=kernel.read(),
        process=Process(dict(environ), libraries(read_text(Path("/proc/self/maps")) or "")),
        software=software.read(),
        ccl=software.ccl(environ),
        network=network.read(),
        ranks=ranks,
    )


def libraries(maps: str) -> frozenset[str]:
    """Return the file names of mapped libraries. Source: proc(5), /proc/pid/maps."""
    paths = (line.partition("/")[2] for line in maps.splitlines())
    return frozenset(path.rpartition("/")[2] for path in paths if ".so" in path)
