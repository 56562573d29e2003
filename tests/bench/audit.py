"""What the API server's audit log says of an operator: its share of the time, and its writes."""

from __future__ import annotations

import collections
import datetime as dt
import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITES = {"create", "update", "patch", "delete"}
EVENTS = "events"


def entries(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of an audit log; the last line may be half written."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def writes(file: Path, user: str) -> collections.Counter[str]:
    """Count the successful writes of a user, by resource and verb."""
    counted: collections.Counter[str] = collections.Counter()
    for entry in entries(file):
        if entry["user"]["username"] == user and entry["verb"] in WRITES and succeeded(entry):
            target = entry["objectRef"]
            name = "/".join(filter(None, (target["resource"], target.get("subresource"))))
            counted[f"{entry['verb']} {name}"] += 1
    return counted


def refused(file: Path, user: str) -> list[str]:
    """List what a user tried and was not allowed to."""
    return [
        f"{entry['verb']} {entry.get('requestURI')}"
        for entry in entries(file)
        if entry["user"]["username"] == user and entry.get("responseStatus", {}).get("code") == 403
    ]


def shares(file: Path, user: str) -> list[str]:
    """Say how long it took from a job's creation to its StatefulSet, by groups of jobs, and count writes."""
    created: dict[str, float] = {}
    applied: dict[str, float] = {}
    for entry in entries(file):
        target = entry.get("objectRef") or {}
        if not succeeded(entry):
            continue
        if entry["verb"] == "create" and target.get("resource") == "cpufinetunes":
            created[entry["requestURI"].split("?")[0] + "/" + name_of(entry)] = end(entry)
        if (
            target.get("resource") == "statefulsets"
            and entry["user"]["username"] == user
            and not target.get("subresource")
        ):
            applied.setdefault(name_of(entry), end(entry))
    groups: dict[str, list[float]] = collections.defaultdict(list)
    last: dict[str, tuple[float, float]] = {}
    for path, time in created.items():
        name = path.rsplit("/", 1)[-1]
        if name in applied:
            group = name.rpartition("-")[0]
            groups[group].append(applied[name] - time)
            first, latest = last.get(group, (time, applied[name]))
            last[group] = (min(first, time), max(latest, applied[name]))
    lines = [
        f"own share, {group}: created to StatefulSet applied: median {statistics.median(taken) * 1000:.0f} ms, "
        f"max {max(taken) * 1000:.0f} ms; first created to last applied {last[group][1] - last[group][0]:.1f} s"
        for group, taken in groups.items()
    ]
    counted = writes(file, user)
    total, events = sum(counted.values()), sum(count for name, count in counted.items() if name.endswith(EVENTS))
    jobs = max(1, len(created))
    each = f"{total / jobs:.1f} a job, {events / jobs:.1f} of them events"
    lines.append(f"writes: {total} for {jobs} jobs, {each}: {dict(counted)}")
    return lines


def succeeded(entry: dict[str, Any]) -> bool:
    """Tell whether a request was carried out."""
    return bool(200 <= entry.get("responseStatus", {}).get("code", 0) < 300)


def name_of(entry: dict[str, Any]) -> str:
    """Return the name of the object; that of a created one is not in the request's path."""
    return str((entry.get("objectRef") or {}).get("name", ""))


def end(entry: dict[str, Any]) -> float:
    """Return when a request ended, in seconds."""
    return dt.datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
