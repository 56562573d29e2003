"""Rank processes that are started once for many checks, for the tests of the ccl backend."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.comms.ccl import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).parents[3]
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - that is where it is
WORLDS = {"2-flat": (2, "flat"), "2-shared": (2, "shared"), "4-flat": (4, "flat"), "4-shared": (4, "shared")}
WORLDS["4-nodes"] = (4, "nodes")
LONGEST_CALL = 60.0  # seconds
LONGEST_START = 30.0
LONGEST_OPERATION = 40.0  # what a group waits for a peer
LONGEST_END = 20.0
LAST_OUTPUT = 8000  # characters of a rank's log that a failure shows
QUIET = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Torch asks for the name of each peer's address, and a name service that does not answer takes 10 s by default.
    "RES_OPTIONS": "timeout:1 attempts:1",
}


@dataclass
class Rank:
    """A rank process and the socket that takes calls."""

    number: int
    pid: int
    stream: Any
    log: Path
    reap: Callable[[int, float], int | None]
    code: int | None = None

    def ask(self, call: str, **arguments: Any) -> None:
        """Make a call; `answer` returns what came of it."""
        # A process that has ended is told of by the answer.
        with contextlib.suppress(OSError):
            self.stream.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
            self.stream.flush()

    def answer(self) -> dict[str, Any]:
        """Return the value or the error of a call, and the seconds that it took."""
        try:
            line = self.stream.readline()
        except OSError:
            line = ""
        if line:
            return dict(json.loads(line))
        return {"error": "Ended", "text": f"its process ended with {self.end()}: {self.output()}", "trace": ""}

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, unless the process has ended: its number may be somebody else's by now."""
        if self.code is None:
            os.kill(self.pid, number)

    def close(self) -> None:
        """Close the socket, at which the process ends by itself."""
        with contextlib.suppress(OSError):
            self.stream.close()

    def end(self, seconds: float = LONGEST_END) -> int | None:
        """Return the exit code of the process, which has nothing more to do; None if it does not end."""
        self.close()
        if self.code is None:
            self.code = self.reap(self.pid, seconds)
        return self.code

    def output(self) -> str:
        """What it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-LAST_OUTPUT:]


@dataclass
class World:
    """Ranks that make the same calls."""

    size: int
    topology: str
    ranks: list[Rank]
    extension: Path
    described: str = ""

    def attempt(self, call: str, seconds: float = LONGEST_CALL, only: Any = None, **arguments: Any) -> dict[int, Any]:
        """Make a call on all ranks at once, or only on some; return all answers, errors too."""
        chosen = [self.ranks[number] for number in (range(self.size) if only is None else only)]
        for rank in chosen:
            rank.ask(call, **arguments)
        with ThreadPoolExecutor(len(chosen)) as pool:
            waiting = {rank.number: pool.submit(rank.answer) for rank in chosen}
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not all(one.done() for one in waiting.values()):
                time.sleep(0.002)
            late = [number for number, one in waiting.items() if not one.done()]
            if late:
                text = self.stacks(late)
                self.kill()
            answers = {number: one.result() for number, one in waiting.items()}
        if late:
            failed = "\n".join(one["trace"] for one in answers.values() if one.get("trace"))
            pytest.fail(f"{call} did not end within {seconds} s on ranks {late}:\n{text}\n{failed}")
        return answers

    def call(self, call: str, seconds: float = LONGEST_CALL, only: Any = None, **arguments: Any) -> list[Any]:
        """Make a call on all ranks at once, or only on some; return the values. An error fails the test."""
        answers = self.attempt(call, seconds, only, **arguments)
        failed = [f"rank {number}: {one['trace'] or one['text']}" for number, one in answers.items() if "error" in one]
        assert not failed, "\n".join([f"{call} on {self.described}:", *failed])
        return [one["value"] for one in answers.values()]

    def join(self, timeout: float = LONGEST_OPERATION, **changes: Any) -> World:
        """Form the group; operations of it may take `timeout` seconds."""
        self.register()
        (port,) = self.call("context.listen", only=[0])
        (self.described, *_) = self.call("context.join", port=port, timeout=timeout, **changes)
        return self

    def register(self) -> None:
        """Load the backend in all ranks."""
        self.call("context.register", extension=str(self.extension), size=self.size, topology=self.topology)

    def stacks(self, numbers: list[int]) -> str:
        """Return where the threads of some ranks are."""
        for number in numbers:
            with contextlib.suppress(OSError):
                self.ranks[number].kill(signal.SIGUSR1)
        time.sleep(0.5)
        return "\n".join(f"rank {number}:\n{self.ranks[number].output()}" for number in numbers)

    def kill(self) -> None:
        """End all ranks at once."""
        for rank in self.ranks:
            with contextlib.suppress(OSError):
                rank.kill()

    def end(self, only: Any = None) -> list[int | None]:
        """Let all ranks or some end by themselves; return their exit codes, None for one that does not end."""
        ending = [self.ranks[number] for number in (range(self.size) if only is None else only)]
        for rank in ending:
            rank.close()
        codes = [rank.end() for rank in ending]
        for rank, code in zip(ending, codes, strict=True):
            if code is None:
                rank.kill()
                rank.end()
        return codes


@dataclass
class Zygote:
    """The process that ranks are forked from."""

    folder: Path
    extension: Path
    process: subprocess.Popen[str] = field(init=False)
    started: int = 0
    pids: set[int] = field(default_factory=set)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Start it; it imports torch while other things go on."""
        command = [sys.executable, "-m", "tests.trainer.ccl.ranks.zygote"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CCL_", "FI_"))}
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**inherited, **QUIET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def request(self, **content: Any) -> Any:
        """Send a request; return the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with self.turn:
            self.process.stdin.write(json.dumps(content) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def reap(self, pid: int, seconds: float) -> int | None:
        """Return the exit code of a rank, None if it does not end in time."""
        code = self.request(wait=pid, seconds=seconds)
        return None if code is None else int(code)

    def world(self, size: int, topology: str) -> World:
        """Start ranks, which are not connected yet."""
        self.started += 1
        ranks = []
        address = str(self.folder / f"{self.started}.socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            listener.settimeout(LONGEST_START)
            for number in range(size):
                log = self.folder / f"{self.started}-{number}.log"
                pid = self.request(fork={"rank": number, "address": address, "log": str(log)})
                self.pids.add(pid)
                connection, _ = listener.accept()
                connection.settimeout(None)
                with connection:
                    stream = connection.makefile("rw", encoding="utf-8")
                assert json.loads(stream.readline()) == {"rank": number}
                ranks.append(Rank(number, pid, stream, log, self.reap))
        return World(size, topology, ranks, self.extension)


@pytest.fixture(scope="session")
def extension() -> Path:
    """The compiled backend."""
    try:
        locate.find()
    except locate.CclError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-W", "ignore", "-m", "cpufinetune.comms.ccl.compile"]
    done = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def zygote(extension: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """The process that ranks are forked from."""
    found = Zygote(tmp_path_factory.mktemp("ccl"), extension)
    yield found
    found.process.kill()
    found.process.communicate()


@pytest.fixture(scope="session", params=WORLDS)
def world(request: pytest.FixtureRequest, zygote: Zygote) -> Iterator[World]:
    """Connected ranks: one world after the other, each for all tests."""
    found = zygote.world(*WORLDS[request.param])
    try:
        yield found.join()
        found.call("context.leave")
        assert found.end() == [0] * found.size, found.ranks[0].output()
    finally:
        found.kill()
        found.end()


@pytest.fixture
def start(zygote: Zygote) -> Iterator[Callable[[int, str], World]]:
    """Start ranks for one test: `start(2, "flat")`; they are gone after it."""
    worlds: list[World] = []

    def begin(size: int, topology: str) -> World:
        worlds.append(zygote.world(size, topology))
        return worlds[-1]

    yield begin
    for one in worlds:
        one.kill()
        one.end()


@pytest.fixture
def left_behind(zygote: Zygote) -> Callable[[], set[str]]:
    """What is in /dev/shm that one of the ranks has made."""
    return lambda: {path.name for pid in zygote.pids for path in SHARED_MEMORY.glob(f"cpufinetune-{pid}-*")}
