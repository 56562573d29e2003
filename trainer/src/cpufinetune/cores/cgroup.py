"""Limits that control groups put on this process, v1 and v2, from its own group up to the root of the mount."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from cpufinetune.cores.cpulist import parse_cpus

if TYPE_CHECKING:
    from collections.abc import Iterator

# v1 says "no limit" with the largest page-aligned 63-bit number; no machine has an exbibyte.
_UNLIMITED_BYTES = 1 << 60
# The name under which /proc/self/cgroup and we know the unified (v2) hierarchy.
_UNIFIED = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The tightest limits found: quota in CPUs, memory in bytes, ids of the cpuset; None where there is none."""

    quota: float | None = None
    memory: int | None = None
    cpuset: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy: `root` is the control group that is seen at `point`."""

    controllers: frozenset[str]
    root: str
    point: Path


def read_limits(root: Path) -> Limits:
    """Read the limits in the file system at `root`. What cannot be read does not limit."""
    mounts = _mounts(root)
    quotas: list[float] = []
    memories: list[int] = []
    cpusets: list[frozenset[int]] = []
    for controller, path in _own_groups(root):
        for group in _visible_ancestors(mounts, controller, path):
            quotas.extend(_quota(group))
            memories.extend(_memory(group))
            cpusets.extend(_cpuset(group))
    return Limits(
        quota=min(quotas, default=None),
        memory=min(memories, default=None),
        cpuset=frozenset.intersection(*cpusets) if cpusets else None,
    )


def read_text(path: Path) -> str | None:
    """The text of a kernel file without its newline; None if it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _own_groups(root: Path) -> list[tuple[str, str]]:
    """(controller, path) of each hierarchy; the roots of the mounts where /proc is silent. Source: cgroups(7)."""
    text = read_text(root / "proc/self/cgroup")
    if not text:
        return [(controller, "/") for controller in (_UNIFIED, "cpu", "memory", "cpuset")]
    fields = [line.split(":", 2) for line in text.splitlines()]
    lines = [(field[1], field[2]) for field in fields if len(field) == 3]  # noqa: PLR2004 - id:controllers:path
    return [(controller, path) for controllers, path in lines for controller in controllers.split(",")]


def _mounts(root: Path) -> tuple[_Mount, ...]:
    """The mounts of control groups; their customary places where mountinfo is missing."""
    text = read_text(root / "proc/self/mountinfo")
    if text is None:
        base = root / "sys/fs/cgroup"
        v1 = ("cpu", "cpu,cpuacct", "cpuacct,cpu", "memory", "cpuset")
        # Where `unified` exists the folder above it is a tmpfs and limits nothing.
        v2 = [_Mount(frozenset({_UNIFIED}), "/", place) for place in (base / "unified", base)]
        return (*(_Mount(frozenset(name.split(",")), "/", base / name) for name in v1), *v2)
    return tuple(mount for line in text.splitlines() for mount in _mount(root, line))


def _mount(root: Path, line: str) -> Iterator[_Mount]:
    """Parse one line of mountinfo: id parent device root point options ... - type source options."""
    before, _, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if len(left) < 5 or len(right) < 3 or right[0] not in {"cgroup", "cgroup2"}:  # noqa: PLR2004 - see above
        return
    controllers = frozenset({_UNIFIED}) if right[0] == "cgroup2" else frozenset(right[2].split(","))
    yield _Mount(controllers, left[3], root / left[4].lstrip("/"))


def _visible_ancestors(mounts: tuple[_Mount, ...], controller: str, path: str) -> list[Path]:
    """Folders of the own group and its ancestors, as far as a mount shows them."""
    places = [(mount.point, _below(mount, path)) for mount in mounts if controller in mount.controllers]
    places = [(point, own) for point, own in places if point.is_dir()]
    for point, own in places:
        if own is not None and (point / own).is_dir():
            folders = [point / own, *(point / own).parents]
            return folders[: folders.index(point) + 1]
    # A container often sees the host's path in /proc, but its own group at the root of the mount.
    return [places[0][0]] if places else []


def _below(mount: _Mount, path: str) -> PurePosixPath | None:
    """The path of a group relative to the mount, or None if it lies outside."""
    own = PurePosixPath(path)
    if ".." in own.parts or not own.is_relative_to(mount.root):
        return None
    return own.relative_to(mount.root)


def _quota(group: Path) -> Iterator[float]:
    """CPUs allowed by CFS bandwidth control: cpu.max (v2), cpu.cfs_quota_us and its period (v1)."""
    v2 = (read_text(group / "cpu.max") or "").split()
    v1 = [read_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
    for pair in (v2, v1):
        if len(pair) == 2 and all(text.isdecimal() and int(text) > 0 for text in pair):  # noqa: PLR2004 - quota, period
            yield int(pair[0]) / int(pair[1])


def _memory(group: Path) -> Iterator[int]:
    """Bytes allowed by memory.max (v2) or memory.limit_in_bytes (v1)."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = read_text(group / name) or ""
        if text.isdecimal() and int(text) < _UNLIMITED_BYTES:
            yield int(text)


def _cpuset(group: Path) -> Iterator[frozenset[int]]:
    """CPUs of cpuset.cpus.effective (v2) or cpuset.effective_cpus (v1)."""
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
        try:
            ids = frozenset(parse_cpus(read_text(group / name) or ""))
        except ValueError:
            continue
        if ids:
            yield ids
