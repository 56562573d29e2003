"""Processes that outlive the program which starts them, and are found again by their records."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localcluster.plan import ClusterError
from localcluster.tools import find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

START_SECONDS = 60.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
RETRIES = 5
LOG_LINES = 15


@dataclass(frozen=True, slots=True)
class Component:
    """One program of the cluster.

    Attributes:
        ready: tells whether it serves; asked until it says so.
        namespace: network namespace to run in; None is the machine's own.
    """

    name: str
    argv: tuple[str, ...]
    ready: Callable[[], bool]
    namespace: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Starts and stops components, and records them in `folder`."""

    folder: Path
    logs: Path

    def spawn(self, component: Component) -> None:
        """Start a component without waiting for it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        argv = list(component.argv)
        if component.namespace:
            # Only the network is another one: mounts of containers have to show on the machine.
            argv = [find("nsenter"), f"--net=/run/netns/{component.namespace}", "--", *argv]
        log = os.open(self.logs / f"{component.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # Not subprocess: its objects want to be waited for, and these processes outlive this one.
        pid = os.posix_spawn(
            argv[0],
            argv,
            {**os.environ, **component.environment},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
        os.close(log)
        record = {"pid": pid, "started": _started(pid), "argv": argv}
        (self.folder / f"{component.name}.json").write_text(json.dumps(record), encoding="utf-8")

    def wait(self, component: Component, seconds: float = START_SECONDS) -> None:
        """Wait until a component is ready; start it again when it ends, as some do until others are there.

        Raises:
            ClusterError: it is not ready in time; the text ends with its log.
        """
        deadline = time.monotonic() + seconds
        retries = RETRIES
        while not component.ready():
            if self.pid(component.name) is None:
                if not retries:
                    raise ClusterError(f"{component.name} ends at once{self._tail(component.name)}")
                retries -= 1
                time.sleep(POLL_SECONDS * 4)
                self.spawn(component)
            if time.monotonic() > deadline:
                raise ClusterError(f"{component.name} is not ready after {seconds:.0f} s{self._tail(component.name)}")
            time.sleep(POLL_SECONDS)

    def start(self, component: Component, seconds: float = START_SECONDS) -> None:
        """Start a component and wait until it is ready."""
        self.spawn(component)
        self.wait(component, seconds)

    def pid(self, name: str) -> int | None:
        """Process id of a recorded component that still runs."""
        try:
            record = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        # The start time tells it from a later process that got the same number.
        return record["pid"] if _started(record["pid"]) == record["started"] else None

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a component."""
        pid = self.pid(name)
        if pid is None:
            raise ClusterError(f"{name} does not run")
        os.kill(pid, number)

    def stop(self, name: str, *, kill: bool = False) -> None:
        """Stop a component and its process group; one that has ended already is fine."""
        pid = self.pid(name)
        if pid is not None:
            group = os.getpgid(pid)
            os.killpg(group, signal.SIGCONT)
            os.killpg(group, signal.SIGKILL if kill else signal.SIGTERM)
            if not _ends(pid, STOP_SECONDS):
                os.killpg(group, signal.SIGKILL)
                _ends(pid, STOP_SECONDS)
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Names of all recorded components, the latest first."""
        records = sorted(self.folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
        return [file.stem for file in records]

    def stop_all(self) -> None:
        """Stop every recorded component, the latest first."""
        for name in self.names():
            self.stop(name)

    def _tail(self, name: str) -> str:
        log = self.logs / f"{name}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        return f"; the end of {log}:\n" + "\n".join(lines[-LOG_LINES:])


def _started(pid: int) -> str | None:
    """Start time of a living process in clock ticks since boot; zombies do not count."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a file of the kernel
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _ends(pid: int, seconds: float) -> bool:
    """Wait for a process, which may be another's child; leave no zombie if it is ours."""
    deadline = time.monotonic() + seconds
    while alive := _started(pid) is not None:
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS / 5)
    with contextlib.suppress(ChildProcessError):
        # Its first thread may be gone a moment before the others.
        os.waitpid(pid, os.WNOHANG if alive else 0)
    return not alive
