"""Control groups of a node, in both versions of the kernel's interface."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster.plan import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path("/sys/fs/cgroup")
V2_CONTROLLERS = "+cpuset +cpu +io +memory +hugetlb +pids"
KILL_SECONDS = 10.0
POLL_SECONDS = 0.02


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
            # A new group of version 1 has no processors at all, and nothing can run in it. In version 2 it has those of
            # the root, which has no such file.
            if (group / file).exists() and (hierarchy / file).exists() and not _text(group / file):
                (group / file).write_text(_text(hierarchy / file), encoding="utf-8")


def processes(name: str) -> set[int]:
    """Ids of all processes in the group and below, in any hierarchy."""
    found: set[int] = set()
    for group in _groups(name):
        with contextlib.suppress(OSError):
            found.update(int(line) for line in (group / "cgroup.procs").read_text(encoding="utf-8").split())
    return found - {0}


def kill(name: str) -> None:
    """Kill all processes in the group and wait until they are gone.

    Raises:
        ClusterError: some do not end.
    """
    deadline = time.monotonic() + KILL_SECONDS
    while alive := processes(name):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of control group {name} do not end: {', '.join(map(str, sorted(alive)))}")
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _thaw(name)
        time.sleep(POLL_SECONDS)


def remove(name: str) -> None:
    """Remove the group and all below it; its processes are gone.

    Raises:
        ClusterError: something is in it still.
    """
    deadline = time.monotonic() + KILL_SECONDS
    while True:
        for group in sorted(_groups(name), key=lambda one: -len(one.parts)):
            # The kernel takes a moment to let go of a group whose last process has ended.
            with contextlib.suppress(OSError):
                group.rmdir()
        left = list(_groups(name))
        if not left:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"control groups cannot be removed: {', '.join(map(str, left))}")
        time.sleep(POLL_SECONDS)


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip()


def _groups(name: str) -> Iterator[Path]:
    """The group and all below it, in every hierarchy; they may go while this looks."""
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy / name):
            yield Path(folder)


def _thaw(name: str) -> None:
    """Let go what runc had frozen when it was killed: signals wait for that in version 1."""
    for group in _groups(name):
        with contextlib.suppress(OSError):
            if (group / "freezer.state").exists():
                (group / "freezer.state").write_text("THAWED", encoding="utf-8")


def _enable(hierarchy: Path) -> None:
    for controller in V2_CONTROLLERS.split():
        # One that the kernel lacks must not keep the others from being enabled.
        with contextlib.suppress(OSError):
            (hierarchy / "cgroup.subtree_control").write_text(controller, encoding="utf-8")
