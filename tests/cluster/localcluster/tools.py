"""The system's programs that the cluster stands on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# An ordinary user's PATH, and that of some services, leaves these out.
ADMIN_FOLDERS = ("/usr/sbin", "/sbin")
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback")
CNI_PACKAGE = "containernetworking-plugins"
INSTALL = "apt-get install --no-install-recommends"
# In the order in which the command names them.
PACKAGES = {
    "containerd": ("containerd", "ctr"),
    "runc": ("runc",),
    CNI_PACKAGE: (),
    "nftables": ("nft",),
    "buildah": ("buildah",),
    "debootstrap": ("debootstrap",),
    "iproute2": ("ip", "tc"),
    "iptables": ("iptables",),
    "procps": ("ps", "sysctl"),
    "util-linux": ("nsenter",),
    "mount": ("mount", "umount"),
    # The first only recommends the second, without which nothing is linked.
    "gcc libc6-dev": ("cc",),
}


class ToolsError(Exception):
    """Something that the cluster needs is not on this machine; the text lists it all, with the cure."""


def require_tools() -> None:
    """Raise one `ToolsError` about all that is missing."""
    text = complaint(root=os.geteuid() == 0)
    if text:
        raise ToolsError(text)


def find(program: str) -> str:
    """Return the absolute path of `program`."""
    path = _which(program)
    if path is None:
        package = next((name for name, tools in PACKAGES.items() if program in tools), None)
        cure = f": {INSTALL} {package}" if package else ""
        raise ToolsError(f"{program} is not on PATH, nor in {' or '.join(ADMIN_FOLDERS)}{cure}")
    return path


def cni_folder() -> Path:
    """Return the folder that holds the CNI plugins."""
    lacking = _missing_plugins()
    if lacking:
        raise ToolsError(f"{_plugins_text(lacking)}: {INSTALL} {CNI_PACKAGE}")
    return _best_cni_folder()


def complaint(*, root: bool) -> str:
    """Say what the cluster lacks here, and how to get it; nothing when it lacks nothing."""
    programs = _missing_programs()
    plugins = _missing_plugins()
    lines = []
    if not root:
        lines.append("  root: it makes namespaces, mounts and network devices; run this as root")
    lines += [f"  the program {tool}" for tools in programs.values() for tool in tools]
    if plugins:
        lines.append(f"  {_plugins_text(plugins)}")
    packages = lacking()
    if packages:
        lines.append(f"install with: {INSTALL} {' '.join(packages)}")
    return "\n".join(["the test cluster needs, and does not have:", *lines]) if lines else ""


def lacking() -> list[str]:
    """Return packages that have what is missing, and no others: a containerd that Docker brought would be replaced."""
    plugins = _missing_plugins()
    programs = _missing_programs()
    return [package for package, tools in programs.items() if tools or (package == CNI_PACKAGE and plugins)]


def _missing_programs() -> dict[str, list[str]]:
    return {package: [tool for tool in tools if _which(tool) is None] for package, tools in PACKAGES.items()}


def _which(program: str) -> str | None:
    folders = [os.environ.get("PATH", os.defpath), *ADMIN_FOLDERS]
    found = shutil.which(program, path=os.pathsep.join(folders))
    return None if found is None else str(Path(found).absolute())


def _best_cni_folder() -> Path:
    return min(CNI_FOLDERS, key=lambda folder: len(_lacking(folder)))


def _missing_plugins() -> list[str]:
    return _lacking(_best_cni_folder())


def _lacking(folder: Path) -> list[str]:
    return [plugin for plugin in CNI_PLUGINS if not os.access(folder / plugin, os.X_OK)]


def _plugins_text(plugins: list[str]) -> str:
    named = "the CNI plugin" if len(plugins) == 1 else "the CNI plugins"
    return f"{named} {', '.join(plugins)} in {' or '.join(map(str, CNI_FOLDERS))}"
