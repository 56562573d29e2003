"""Images without a registry: imported once, then shared by all nodes of all clusters through hard links.

A container runtime's folder holds the images' layers as plain files that nothing writes to once they are committed;
only the databases that list them change. A new node gets links to the former and copies of all else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster import plan
from localcluster.leftovers import unmount
from localcluster.network import run
from localcluster.node import CONTAINERD
from localcluster.process import START_SECONDS, Component, Supervisor, end_marked
from localcluster.tools import cni_folder, find

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = 3
# What is written once: compressed layers, and the files that were unpacked from them.
LINKED = ("io.containerd.content.v1.content/blobs", "io.containerd.snapshotter.v1.overlayfs/snapshots")
IMPORT_SECONDS = 600.0


def load(socket: Path, archive: Path) -> None:
    """Import an archive into a running container runtime."""
    command = ("ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", str(archive))
    run(*command, seconds=IMPORT_SECONDS)


def fill(target: Path, archives: Sequence[Path]) -> None:
    """Make `target` a container runtime's folder that holds the images of `archives`."""
    key = name(archives)
    with plan.locked(f"store-{key}"):
        source = _stored(plan.HOME / ".store" / key, archives)
        target.parent.mkdir(parents=True, exist_ok=True)
        linked = tuple(f"{source / part}/" for part in LINKED)

        def link(original: str, copy: str) -> None:
            if original.startswith(linked):
                os.link(original, copy, follow_symlinks=False)
            else:
                shutil.copy2(original, copy)

        shutil.copytree(source, target, symlinks=True, copy_function=link, ignore=_sockets)
        _restore_owners(source, target)


def name(archives: Sequence[Path]) -> str:
    """Name the store of these images; another version of the runtime may lay it out in another way."""
    runtime = Path(find("containerd")).stat()
    parts = [f"{runtime.st_size} {runtime.st_mtime_ns}", *sorted(archive.name for archive in archives)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _stored(folder: Path, archives: Sequence[Path]) -> Path:
    """The store in `folder` that holds just these images; filled if need be."""
    if not (folder / "complete").exists():
        _remove(folder)
        folder.mkdir(parents=True, mode=0o700)
        _import(folder, archives)
        # A power cut must not leave a store that says it is complete and has files without content.
        os.sync()
        (folder / "complete").touch()
        _forget(folder)
    os.utime(folder)
    return folder / "containerd"


def _remove(folder: Path) -> None:
    """Remove a store, also one whose import was killed and left a runtime behind."""
    end_marked(folder)
    unmount(folder)
    if folder.exists():
        shutil.rmtree(folder)


def _import(folder: Path, archives: Sequence[Path]) -> None:
    socket = folder / "s"
    text = CONTAINERD.format(store=folder / "containerd", folder=folder, socket=socket, pause="none", cni=cni_folder())
    (folder / "containerd.toml").write_text(text, encoding="utf-8")
    supervisor = Supervisor(folder / "pids", folder)
    argv = (find("containerd"), "--config", str(folder / "containerd.toml"))
    runtime = Component("containerd", argv, lambda: socket.exists() and _serves(socket))
    try:
        supervisor.start(runtime)
        for archive in archives:
            load(socket, archive)
    finally:
        supervisor.stop("containerd")
        unmount(folder)


def _serves(socket: Path) -> bool:
    # The runtime makes its socket before it answers.
    command = [find("ctr"), "--address", str(socket), "--connect-timeout", "2s", "version"]
    return subprocess.run(command, capture_output=True, check=False, timeout=START_SECONDS).returncode == 0


def _forget(current: Path) -> None:
    """Remove the stores that were not used for the longest time, except those that somebody is filling or using."""
    ages: dict[Path, int] = {}
    for store in current.parent.iterdir():
        # Others forget, too.
        with contextlib.suppress(FileNotFoundError):
            ages[store] = store.stat().st_mtime_ns
    ages.pop(current)
    for old in sorted(ages, key=lambda store: ages[store])[: -(KEPT - 1)]:
        with contextlib.suppress(BlockingIOError), plan.locked(f"store-{old.name}", wait=False):
            _remove(old)


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


def _restore_owners(source: Path, target: Path) -> None:
    """Folders cannot be linked: the copies get the owners of the originals."""
    for folder, names, _files in os.walk(source):
        for entry in (".", *names):
            original = Path(folder) / entry
            status = original.lstat()
            os.chown(target / original.relative_to(source), status.st_uid, status.st_gid, follow_symlinks=False)
