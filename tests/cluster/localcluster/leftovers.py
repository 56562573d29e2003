"""What a node's programs leave outside its folder and its namespaces, and in mounts, once they were killed."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster.network import run
from localcluster.plan import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path("/var/lib/cni/results")
LOG_LINKS = Path("/var/log/containers")
SHIM_SOCKET = re.compile(r"unix://(/run/containerd/s/[0-9a-f]{64})")
ATTEMPTS = 5


def unmount(folder: Path) -> None:
    """Unmount everything below a folder, the deepest first.

    Raises:
        ClusterError: something stays mounted, so that removing the folder could reach what is mounted there.
    """
    for _ in range(ATTEMPTS):
        mounted = mounts(folder)
        if not mounted:
            return
        for mount in sorted(mounted, key=len, reverse=True):
            run("umount", "--lazy", mount, check=False)
        time.sleep(0.05)
    raise ClusterError(f"cannot unmount {', '.join(mounts(folder))}")


def mounts(folder: Path) -> list[str]:
    """Mount points below a folder."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [mount for mount in (line.split()[4] for line in lines) if mount.startswith(f"{folder}/")]


def shim_sockets(folder: Path) -> set[Path]:
    """Sockets of the container runtime's shims: each of their bundles says where its own is."""
    bundles = (folder / "run" / "io.containerd.runtime.v2.task").glob("*/*")
    texts = (_text(bundle / name) for bundle in bundles for name in ("address", "bootstrap.json"))
    return {Path(found[1]) for text in texts if (found := SHIM_SOCKET.search(text))}


def remove_traces(folder: Path) -> None:
    """Remove what network plug-ins remember of a node's pods, and links to their logs."""
    for file in _files(RESULTS):
        if f'"{folder}/' in _text(file):
            file.unlink(missing_ok=True)
    for link in _files(LOG_LINKS):
        if link.is_symlink() and link.readlink().is_relative_to(folder):
            link.unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[Path]:
    return folder.iterdir() if folder.is_dir() else iter(())


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
