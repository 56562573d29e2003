"""Processes that outlive the program which starts them, and are found again by their records."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster.addresses import direct
from localcluster.plan import ClusterError, write
from localcluster.tools import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# In the environment of every component and of all that these start: so one is found that was started but, because its
# owner was killed in between, not recorded.
MARK = "LOCALCLUSTER"
# What pods see of files that are made for them must not depend on the settings of whoever brings the cluster up.
UMASK = 0o022
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
        """Start a component without waiting for it; one that runs already is left alone."""
        if self.pid(component.name) is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        argv = list(component.argv)
        if component.namespace:
            # Only the network is another one: mounts of containers have to show on the machine.
            argv = [find("nsenter"), f"--net=/run/netns/{component.namespace}", "--", *argv]
        mark = self.folder.parent / component.name.rpartition(".")[0]
        environment = {**direct(os.environ), **component.environment, MARK: str(mark)}
        log = os.open(self.logs / f"{component.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        pid = _spawn(argv, environment, log)
        os.close(log)
        record = {"pid": pid, "started": _started(pid), "argv": argv}
        write(self.folder / f"{component.name}.json", json.dumps(record))

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
        """Start a component, unless it runs already, and wait until it is ready."""
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
            _signal_group(pid, signal.SIGCONT)
            _signal_group(pid, signal.SIGKILL if kill else signal.SIGTERM)
            if not _ends(pid, STOP_SECONDS):
                _signal_group(pid, signal.SIGKILL)
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


def end_marked(folder: Path) -> None:
    """Kill every process that was started, by whatever way, for the cluster or node that lives in `folder`.

    Raises:
        ClusterError: some do not end.
    """
    deadline = time.monotonic() + STOP_SECONDS
    while left := list(_kill_marked(folder)):
        if time.monotonic() > deadline:
            raise ClusterError(f"processes of {folder} do not end: {', '.join(map(str, left))}")
        time.sleep(POLL_SECONDS / 5)


def _kill_marked(folder: Path) -> Iterator[int]:
    """Kill once; give the processes that were there."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError), _handle(int(entry.name)) as handle:
            for setting in (entry / "environ").read_bytes().split(b"\0"):
                name, _, value = setting.partition(b"=")
                if name == MARK.encode() and Path(os.fsdecode(value)).is_relative_to(folder):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    yield int(entry.name)


@contextlib.contextmanager
def _handle(pid: int) -> Iterator[int]:
    """Open a handle that stays with this process: its number may be another's by the time a signal is sent."""
    handle = os.pidfd_open(pid)
    try:
        yield handle
    finally:
        os.close(handle)


def _spawn(argv: list[str], environment: Mapping[str, str], log: int) -> int:
    """Start a program that writes to `log` and has nothing else of this process; return its number."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
        # A pipe of the caller's shell would stay open as long as the cluster is up.
        *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inherited()),
    ]
    before = os.umask(UMASK)
    try:
        # Not subprocess: its objects want to be waited for, and these processes outlive this one.
        return os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsid=True)
    finally:
        os.umask(before)


def _inherited() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are numbers here
        with contextlib.suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):
                yield int(name)


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a component and the processes beside it; it leads their group, and may just have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie, which some first processes never reap."""
    return _started(pid) is not None


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
