"""Control groups of a node, in both versions of the kernel's interface."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V2_CONTROLLERS = "+cpuset +cpu +io +memory +hugetlb +pids"
KILL_SECONDS = 10.0


def hierarchies() -> list[Path]:
    """Mount points of the hierarchies that the kubelet uses; one with version 2."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return sorted(folder for folder in ROOT.iterdir() if (folder / "cgroup.procs").exists() and not folder.is_symlink())


def create(name: str) -> None:
    """Create the group in every hierarchy: a kubelet wants its root to be there already."""
    for hierarchy in hierarchies():
        if (hierarchy / "cgroup.subtree_control").exists():
            _enable(hierarchy)
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for file in ("cpuset.mems", "cpuset.cpus"):
            # A new group of version 1 has no processors at all, and nothing can run in it.
            if (group / file).exists() and not (group / file).read_text(encoding="utf-8").strip():
                (group / file).write_text((hierarchy / file).read_text(encoding="utf-8"), encoding="utf-8")


def processes(name: str) -> set[int]:
    """Ids of all processes in the group and below, in any hierarchy."""
    files = [file for hierarchy in hierarchies() for file in (hierarchy / name).rglob("cgroup.procs")]
    found: set[int] = set()
    for file in files:
        with contextlib.suppress(OSError):
            found.update(int(line) for line in file.read_text(encoding="utf-8").split())
    return found - {0}


def kill(name: str) -> None:
    """Kill all processes in the group and wait until they are gone."""
    deadline = time.monotonic() + KILL_SECONDS
    while (alive := processes(name)) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def remove(name: str) -> None:
    """Remove the group and all below it; its processes are gone."""
    for hierarchy in hierarchies():
        group = hierarchy / name
        folders = sorted((folder for folder in group.rglob("*") if folder.is_dir()), key=lambda one: -len(one.parts))
        for folder in [*folders, group]:
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


def _enable(hierarchy: Path) -> None:
    for controller in V2_CONTROLLERS.split():
        # One that the kernel lacks must not keep the others from being enabled.
        with contextlib.suppress(OSError):
            (hierarchy / "cgroup.subtree_control").write_text(controller, encoding="utf-8")
