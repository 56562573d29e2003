"""Images without a registry: imported once, then shared by all nodes of all clusters through hard links.

A container runtime's folder holds the images' layers as plain files that nothing writes to once they are committed;
only the database that lists them changes. A new node gets links to the former and a copy of the latter.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster import plan
from localcluster.network import run
from localcluster.node import CONTAINERD, unmount
from localcluster.process import Component, Supervisor
from localcluster.tools import cni_folder, find

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = 3
DATABASES = {".db"}


def load(socket: Path, archive: Path) -> None:
    """Import an archive into a running container runtime."""
    run("ctr", "--address", str(socket), "--namespace", "k8s.io", "images", "import", str(archive))


def fill(target: Path, archives: Sequence[Path]) -> None:
    """Make `target` a container runtime's folder that holds the images of `archives`."""
    with plan.locked("store"):
        source = _stored(archives)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, symlinks=True, copy_function=_link, ignore=_sockets)
        _restore_owners(source, target)


def _stored(archives: Sequence[Path]) -> Path:
    """The store that holds just these images; filled from the one that shares most with it, if there is any."""
    home = plan.HOME / ".store"
    names = sorted(archive.name for archive in archives)
    folder = home / hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    if not (folder / "complete").exists():
        if folder.exists():
            unmount(folder)
            shutil.rmtree(folder)
        folder.mkdir(parents=True, mode=0o700)
        _import(folder, archives)
        (folder / "complete").touch()
        _forget(home)
    os.utime(folder)
    return folder / "containerd"


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
    command = [find("ctr"), "--address", str(socket), "version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _forget(home: Path) -> None:
    """Remove the stores that were not used for the longest time."""
    stores = sorted((one for one in home.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime_ns)
    for old in stores[:-KEPT]:
        shutil.rmtree(old)


def _link(source: str, target: str) -> None:
    if Path(source).suffix in DATABASES:
        shutil.copy2(source, target)
    else:
        os.link(source, target, follow_symlinks=False)


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


def _restore_owners(source: Path, target: Path) -> None:
    """Folders cannot be linked: the copies get the owners of the originals."""
    for folder, names, _files in os.walk(source):
        for name in (".", *names):
            original = Path(folder) / name
            status = original.lstat()
            os.chown(target / original.relative_to(source), status.st_uid, status.st_gid, follow_symlinks=False)
