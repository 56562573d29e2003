"""What the API server holds, as last heard: from watches, and from the answers to our own writes.

A write's answer goes in as well, so that the next decision never rests on a state of before it. Versions keep older
news from overwriting newer ones, tell the echo of our own write, and keep what was deleted from coming back.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cpufinetune_operator import kinds, names, views

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cpufinetune_operator.kinds import Kind
    from cpufinetune_operator.model import Child, ChildKind, JobView, Key, PodView

    Raw = Mapping[str, Any]

_MOST_TOMBSTONES = 4096


@dataclass(slots=True)
class _Entry:
    kind: str
    key: Key
    version: int | None


@dataclass(slots=True)
class Mirror:
    """Views of all objects, by job."""

    _jobs: dict[Key, JobView] = field(default_factory=dict)
    _children: dict[Key, dict[ChildKind, Child]] = field(default_factory=dict)
    _pods: dict[Key, dict[str, PodView]] = field(default_factory=dict)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _tombstones: OrderedDict[str, int | None] = field(default_factory=OrderedDict)

    def keys(self) -> tuple[Key, ...]:
        """All jobs."""
        return tuple(self._jobs)

    def jobs(self) -> Iterable[JobView]:
        """All jobs' views."""
        return self._jobs.values()

    def job(self, key: Key) -> JobView | None:
        """A job's view, if there is such a job."""
        return self._jobs.get(key)

    def key(self, uid: str) -> Key | None:
        """The job that an object concerns."""
        entry = self._entries.get(uid)
        return entry.key if entry else None

    def children(self, key: Key) -> dict[ChildKind, Child]:
        """What there is of a job's name, ours or not."""
        return dict(self._children.get(key, {}))

    def pods(self, key: Key) -> tuple[PodView, ...]:
        """Pods that say that they are of this job, by index."""
        return tuple(sorted(self._pods.get(key, {}).values(), key=lambda pod: (pod.index, pod.uid)))

    def put(self, kind: Kind, raw: Raw) -> Key | None:
        """Take in an object; return the job that it concerns, None if it is no news."""
        metadata = raw["metadata"]
        uid, version = metadata["uid"], _version(metadata)
        known = self._entries.get(uid)
        if self._is_past(uid, version):
            return None
        key = _key(kind, metadata)
        if known and known.key != key:  # somebody changed a pod's labels
            self._remove(known, uid)
        if kind is kinds.JOB:
            self._jobs[key] = views.job(raw, self._jobs.get(key))
        elif kind is kinds.POD:
            self._pods.setdefault(key, {})[uid] = views.pod(raw)
        else:
            view = views.child({"kind": kind.name, **raw})
            self._children.setdefault(key, {})[view.kind] = view
        self._entries[uid] = _Entry(kind.name, key, version)
        self._tombstones.pop(uid, None)
        return key

    def drop(self, uid: str, version: str = "") -> Key | None:
        """Forget an object that is gone; return the job that it concerned, None if it is no news.

        It may be gone from what is watched only, by its labels, and come back with them.

        Args:
            uid: the object's.
            version: by which it was gone; nothing of it is taken in again that is not newer. Nothing at all if unknown.
        """
        return self._drop(uid, _number(version))

    def _drop(self, uid: str, version: int | None) -> Key | None:
        entry = self._entries.get(uid)
        if entry and _is_older(version, entry.version):  # it was put back, and the answer to that came first
            return None
        self._tombstones[uid] = version
        self._tombstones.move_to_end(uid)
        while len(self._tombstones) > _MOST_TOMBSTONES:
            self._tombstones.popitem(last=False)
        if entry is None:
            return None
        del self._entries[uid]
        self._remove(entry, uid)
        return entry.key

    def sweep(self, kind: Kind, namespace: str | None, listed: Collection[str], version: str) -> list[Key]:
        """Forget what a list did not have: a watch that began anew never tells what was deleted in between."""
        limit = _number(version)
        gone = [
            uid
            for uid, entry in self._entries.items()
            if entry.kind == kind.name
            and namespace in {None, entry.key[0]}
            and uid not in listed
            and not _is_older(limit, entry.version)
        ]
        return [key for uid in gone if (key := self._drop(uid, limit)) is not None]

    def _is_past(self, uid: str, version: int | None) -> bool:
        """Whether that much, or more, is known of an object."""
        if uid in self._tombstones:
            return not _is_older(self._tombstones[uid], version)
        known = self._entries.get(uid)
        if known is None or known.version is None or version is None:
            return False
        # An equal one is the echo of our own write, or in a new list.
        return version <= known.version

    def _remove(self, entry: _Entry, uid: str) -> None:
        key = entry.key
        if entry.kind == kinds.POD.name:
            self._pods[key].pop(uid, None)
            if not self._pods[key]:
                del self._pods[key]
        elif entry.kind == kinds.JOB.name:
            job = self._jobs.get(key)
            if job and job.uid == uid:
                del self._jobs[key]
        else:
            self._remove_child(key, uid)

    def _remove_child(self, key: Key, uid: str) -> None:
        # A namesake may have taken the place already.
        left = {kind: child for kind, child in self._children.get(key, {}).items() if child.uid != uid}
        if left:
            self._children[key] = left
        else:
            self._children.pop(key, None)


def _key(kind: Kind, metadata: Raw) -> Key:
    name = metadata.get("labels", {}).get(names.LABEL_JOB, "") if kind is kinds.POD else metadata["name"]
    return metadata["namespace"], name


def _version(metadata: Raw) -> int | None:
    return _number(metadata.get("resourceVersion", ""))


def _number(version: str) -> int | None:
    # Opaque by name, but a growing number in every API server, and promised to be one since Kubernetes 1.35.
    return int(version) if version.isdecimal() else None


def _is_older(version: int | None, than: int | None) -> bool:
    return version is not None and than is not None and version < than
