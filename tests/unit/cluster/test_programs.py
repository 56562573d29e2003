"""What is built when, with a stand-in for `go` and real files, locks and processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from localcluster import programs as subject
from localcluster.programs import ProgramsError, cache_key, cache_root, flags, kubernetes_version, needed_go, programs

if TYPE_CHECKING:
    from collections.abc import Callable

# As Go does, it refuses to write over what is there. It waits while HOLD exists, and logs what it is asked for.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo "$VERSION"; exit; fi
while [ "$1" != -o ]; do shift; done
echo "$3" >>"$LOG"
echo $$ >"$LOG.pid"
while [ -e "$HOLD" ]; do sleep 0.02; done
sleep "$SECONDS_EACH"
if [ "$3" = "$BROKEN" ]; then seq -f "line %g" 30 >&2; exit 3; fi
if [ -e "$2" ]; then echo "$2 already exists and is not an object file"; exit 1; fi
echo "$3 $PWD $CGO_ENABLED $GOTOOLCHAIN $GOWORK $GOFLAGS" >"$2"
"""
NAMES = [program.name for program in subject.PROGRAMS]
PACKAGES = [program.package for program in subject.PROGRAMS]
CALL = [sys.executable, "-u", "-c", "from localcluster.programs import programs; print(programs())"]
MOD = "module m\n\ngo {go}\n\nrequire (\n\tk8s.io/client-go v0.8.7\n\tk8s.io/kubernetes v9.8.7 // indirect\n)\n"


@pytest.fixture(name="place", autouse=True)
def fixture_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a stand-in for `go`, its log, and the cache."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO, encoding="utf-8")
    go.chmod(0o755)
    settings = {
        "PATH": f"{go.parent}:/usr/bin:/bin",
        "PYTHONPATH": str(Path(subject.__file__).parents[1]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "LOG": str(tmp_path / "log"),
        "HOLD": str(tmp_path / "hold"),
        "VERSION": "go1.99.1",
        "SECONDS_EACH": "0",
        "BROKEN": "",
        "GOFLAGS": "-p=1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture(name="modules")
def fixture_modules(tmp_path: Path) -> Path:
    for module in subject.MODULE_NAMES:
        folder = tmp_path / "modules" / module
        folder.mkdir(parents=True)
        (folder / "go.mod").write_text(MOD.format(go="1.25.0"), encoding="utf-8")
        (folder / "go.sum").write_text("m v1.0.0 h1:x=\n", encoding="utf-8")
    return tmp_path / "modules"


def log(place: Path) -> list[str]:
    path = place / "log"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_everything_is_built_once_and_then_nothing_is_said(place: Path) -> None:
    said: list[str] = []
    folder = programs(said.append)
    assert folder.parent == place / "cache" / "cpufinetune" / "programs"
    assert len(folder.name) == 16
    assert {path.name for path in folder.iterdir()} == {*NAMES, subject.LOCK}
    assert said[2] == f"building kube-apiserver (2 of 8); a cold build takes about {subject.COLD}"
    assert re.fullmatch(r"built kube-apiserver in \d+ s", said[3])
    assert len(said) == 2 * len(NAMES)
    again: list[str] = []
    assert programs(again.append) == folder
    assert again == []
    assert log(place) == PACKAGES


def test_go_builds_in_the_module_with_what_is_pinned_there() -> None:
    folder = programs(lambda _: None)
    kubelet = (folder / "kubelet").read_text(encoding="utf-8").split()
    assert kubelet == [
        "k8s.io/kubernetes/cmd/kubelet",
        str(subject.MODULES / "kubernetes"),
        "0",
        "local",
        "off",
        "-p=1",
    ]
    assert (folder / "etcd").read_text(encoding="utf-8").split()[1] == str(subject.MODULES / "etcd")
    assert (folder / "coredns").read_text(encoding="utf-8").split()[1] == str(subject.MODULES / "coredns")


def test_a_long_build_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "BEAT_SECONDS", 0.05)
    monkeypatch.setenv("SECONDS_EACH", "0.12")
    said: list[str] = []
    programs(said.append)
    assert [line for line in said if re.match(r"still building etcd, \d+ s", line)] != []


def test_two_builds_at_once_build_each_program_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECONDS_EACH", "0.05")
    both = [subprocess.Popen(CALL, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0][-1] == outputs[1][-1]
    assert sorted(log(place)) == sorted(PACKAGES)


def test_a_killed_build_is_waited_for_and_goes_on_where_it_stopped(place: Path) -> None:
    held = 5
    hold = place / "hold"
    folder = cache_root() / cache_key(subject.MODULES, (1, 99, 1))
    folder.mkdir(parents=True)
    for name in NAMES[:held]:
        (folder / name).touch()
    (folder / f".{NAMES[held]}.building").write_text("half of it", encoding="utf-8")
    hold.touch()
    with subprocess.Popen(CALL, stdout=subprocess.DEVNULL) as killed:
        eventually(lambda: log(place) == PACKAGES[held : held + 1])
        killed.kill()
    with subprocess.Popen(CALL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # The Go that the killed one left behind is still at work.
        said = process.stdout.readline()
        assert re.fullmatch(r"waiting for another build of the same programs, \d+ s so far\n", said)
        hold.unlink()
        rest = process.stdout.read().splitlines()
    assert process.returncode == 0
    assert [line.split()[1] for line in rest if line.startswith("building")] == NAMES[held:]
    assert log(place) == [PACKAGES[held], *PACKAGES[held:]]
    assert {path.name for path in folder.iterdir()} == {*NAMES, subject.LOCK}


def test_an_interrupted_build_ends_go_and_can_be_taken_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("still"):
            raise KeyboardInterrupt

    monkeypatch.setattr(subject, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(subject, "STOP_SECONDS", 1.0)
    (place / "hold").touch()
    with pytest.raises(KeyboardInterrupt):
        programs(interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((place / "log.pid").read_text(encoding="utf-8")), 0)
    (place / "hold").unlink()
    monkeypatch.setattr(subject, "BEAT_SECONDS", 60.0)
    said: list[str] = []
    assert subject.missing(programs(said.append)) == ()
    assert said[0].startswith("building etcd (1 of 8)")


def test_a_failed_build_shows_the_end_of_the_output_and_keeps_what_is_done(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKEN", PACKAGES[1])
    with pytest.raises(ProgramsError) as caught:
        programs(lambda _: None)
    assert str(caught.value).splitlines() == [
        f"`go build {PACKAGES[1]}` in {subject.MODULES / 'kubernetes'} ended with status 3; the end of its output:",
        *(f"line {number}" for number in range(11, 31)),
    ]
    monkeypatch.setenv("BROKEN", "")
    programs(lambda _: None)
    assert log(place) == [PACKAGES[0], *PACKAGES[1:2], *PACKAGES[1:]]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        pytest.param("go1.20.14", "/go is Go 1.20.14: install", id="an old Go"),
        pytest.param("go1.20", "/go is Go 1.20.0: install", id="an old Go of two numbers"),
        pytest.param("nonsense", "/go does not tell its version: nonsense", id="something else of that name"),
    ],
)
def test_an_unfit_go_is_named(place: Path, monkeypatch: pytest.MonkeyPatch, version: str, text: str) -> None:
    monkeypatch.setenv("VERSION", version)
    needed = ".".join(map(str, needed_go(subject.MODULES)))
    with pytest.raises(ProgramsError) as caught:
        programs()
    assert f"built with Go {needed} or newer" in str(caught.value)
    assert text in str(caught.value)
    assert not (place / "cache").exists()


def test_an_absent_go_is_named_with_the_cure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(ProgramsError, match="there is no `go` on PATH: install the Go release for Linux"):
        programs()


@pytest.mark.parametrize("version", ["go1.99", "go1.99.1", "go1.99rc1", "go1.99.1-X:nodwarf5", "devel go1.99-0a1b2c"])
def test_every_form_of_version_is_read(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("VERSION", version)
    assert subject.find_go((1, 99, 0))[1][:2] == (1, 99)


def test_the_strictest_module_decides_which_go_is_needed(modules: Path) -> None:
    (modules / "coredns" / "go.mod").write_text(MOD.format(go="1.9"), encoding="utf-8")
    (modules / "etcd" / "go.mod").write_text(MOD.format(go="1.26.2"), encoding="utf-8")
    assert needed_go(modules) == (1, 26, 2)


def test_flags_stamp_the_pinned_version(modules: Path) -> None:
    assert flags(modules, "etcd") == ["-buildvcs=false", "-trimpath", "-ldflags", "-s -w"]
    assert flags(modules, "kubernetes")[-1] == (
        "-s -w -X k8s.io/component-base/version.gitVersion=v9.8.7 -X k8s.io/component-base/version.gitMajor=9 "
        "-X k8s.io/component-base/version.gitMinor=8 -X k8s.io/client-go/pkg/version.gitVersion=v9.8.7"
    )


def test_a_module_without_kubernetes_is_refused(modules: Path) -> None:
    (modules / "kubernetes" / "go.mod").write_text("module m\n\ngo 1.25.0\n", encoding="utf-8")
    with pytest.raises(ProgramsError, match=r"go\.mod does not require k8s\.io/kubernetes"):
        kubernetes_version(modules)


@pytest.mark.parametrize("name", ["kubernetes/go.mod", "kubernetes/go.sum", "etcd/go.sum", "coredns/go.mod"])
def test_the_key_changes_with_every_pinned_source(modules: Path, name: str) -> None:
    before = cache_key(modules, (1, 26, 8))
    with (modules / name).open("a", encoding="utf-8") as file:
        file.write("// changed\n")
    assert cache_key(modules, (1, 26, 8)) != before


def test_the_key_changes_with_go_but_for_its_patches(modules: Path) -> None:
    assert cache_key(modules, (1, 26, 8)) == cache_key(modules, (1, 26, 9))
    assert cache_key(modules, (1, 26, 8)) != cache_key(modules, (1, 27, 0))


@pytest.mark.parametrize("configured", ["", "relative"])
def test_without_a_usable_setting_the_cache_is_in_the_home(monkeypatch: pytest.MonkeyPatch, configured: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", configured)
    monkeypatch.setenv("HOME", os.sep + "somewhere")
    assert cache_root() == Path(os.sep, "somewhere", ".cache", "cpufinetune", "programs")
