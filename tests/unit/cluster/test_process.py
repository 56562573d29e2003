"""Components as real processes: started once, found by record or mark, and ended with all that they started."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from localcluster.process import MARK, Component, Supervisor, end_marked

if TYPE_CHECKING:
    from collections.abc import Iterator

# Starts a child in a session of its own, as shims are, and says both numbers.
PARENT = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "100"], start_new_session=True)
# The last is of the listing itself.
said = f"{child.pid} {os.umask(0)} {sorted(os.listdir('/proc/self/fd'))[:-1]}"
open(sys.argv[1], "w").write(said)
child.wait()
"""


@pytest.fixture(name="supervisor")
def fixture_supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    yield Supervisor(tmp_path / "one" / "pids", tmp_path / "one" / "logs")
    end_marked(tmp_path)


def component(supervisor: Supervisor, name: str = "node-a.parent") -> Component:
    said = supervisor.folder.parent / f"{name}.said"
    return Component(name, (sys.executable, "-c", PARENT, str(said)), lambda: said.exists() and bool(said.read_text()))


def child(supervisor: Supervisor, name: str = "node-a.parent") -> int:
    return int((supervisor.folder.parent / f"{name}.said").read_text(encoding="utf-8").split()[0])


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(*pids: int) -> bool:
    deadline = time.monotonic() + 10
    while any(map(lives, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(lives, pids))


def test_a_component_that_runs_is_not_started_again(supervisor: Supervisor) -> None:
    one = component(supervisor)
    supervisor.start(one)
    before = supervisor.pid(one.name)
    supervisor.start(one)
    assert supervisor.pid(one.name) == before is not None


def test_it_has_nothing_of_whoever_starts_it(supervisor: Supervisor) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)  # noqa: FBT003 - takes it in no other way
    umask = os.umask(0o077)
    try:
        supervisor.start(component(supervisor))
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(umask)
        os.close(reading)
        os.close(writing)
    said = (supervisor.folder.parent / "node-a.parent.said").read_text(encoding="utf-8")
    assert said.split(" ", 1)[1] == f"{0o022} ['0', '1', '2']"


def test_what_was_not_recorded_is_found_with_its_children(supervisor: Supervisor, tmp_path: Path) -> None:
    one = component(supervisor)
    supervisor.start(one)
    pid = supervisor.pid(one.name)
    assert pid is not None
    (supervisor.folder / f"{one.name}.json").unlink()
    # Neither another node, nor another cluster whose name begins in the same way.
    end_marked(tmp_path / "one" / "node-b")
    end_marked(tmp_path / "on")
    assert lives(pid)
    assert lives(child(supervisor))
    end_marked(tmp_path / "one" / "node-a")
    assert gone(pid, child(supervisor))


def test_a_node_is_a_part_of_its_cluster(supervisor: Supervisor, tmp_path: Path) -> None:
    for name in ("node-a.parent", "server"):
        supervisor.start(component(supervisor, name))
    end_marked(tmp_path / "one")
    assert supervisor.pid("node-a.parent") is supervisor.pid("server") is None
    assert gone(child(supervisor), child(supervisor, "server"))


def test_whoever_calls_is_spared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    end_marked(tmp_path)


def test_one_that_ended_already_is_stopped_in_peace(supervisor: Supervisor) -> None:
    one = component(supervisor)
    supervisor.start(one)
    pid = supervisor.pid(one.name)
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)
    assert gone(pid)
    supervisor.stop(one.name)
    supervisor.stop(one.name)
    assert supervisor.names() == []
