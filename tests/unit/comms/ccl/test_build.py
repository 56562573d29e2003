"""Which compiled backend belongs to which torch and oneCCL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cpufinetune.comms.ccl import build, locate
from cpufinetune.comms.ccl.locate import CclError

ONECCL = locate.OneCcl(Path("/ccl/lib/libccl.so.1"), None, "CCL_ROOT", "2021.16.2", None)


@pytest.fixture
def torch() -> Any:
    with mock.patch("importlib.metadata.version", return_value="2.8.0+cpu") as version:
        yield version


@pytest.fixture
def sources(tmp_path: Path) -> Any:
    (tmp_path / "one.cpp").write_text("one", encoding="utf-8")
    with mock.patch.object(build, "SOURCES", tmp_path):
        yield tmp_path


@pytest.fixture
def places(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folders of prebuilt backends and of those that were compiled here; both empty."""
    del torch
    monkeypatch.setattr(build, "PREBUILT", tmp_path / "prebuilt")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "prebuilt", tmp_path / "home" / "cpufinetune" / "ccl"


def put(folder: Path) -> Path:
    path = folder / build.key(ONECCL) / "cpufinetune_ccl.so"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_the_name_says_for_what_it_is(torch: Any, sources: Path) -> None:
    del torch, sources
    first, version, ccl, oneccl, digest = build.key(ONECCL).split("-")
    assert (first, version, ccl, oneccl) == ("torch", "2.8.0+cpu", "ccl", "2021.16.2")
    assert len(digest) == 12


def test_whatever_it_is_made_of_changes_the_name(torch: Any, sources: Path) -> None:
    del torch
    names = {build.key(ONECCL), build.key(ONECCL)}
    names.add(build.key(replace(ONECCL, version="2021.17.0")))
    names.add(build.key(replace(ONECCL, library=Path("/elsewhere/libccl.so.1"))))
    with mock.patch("importlib.metadata.version", return_value="2.9.0"):
        names.add(build.key(ONECCL))
    (sources / "one.cpp").write_text("another", encoding="utf-8")
    names.add(build.key(ONECCL))
    (sources / "one.cpp").rename(sources / "two.cpp")
    names.add(build.key(ONECCL))
    assert len(names) == 6


def test_nothing_is_built_yet(places: tuple[Path, Path]) -> None:
    del places
    assert build.built(ONECCL) is None


def test_a_backend_that_came_along_goes_before_one_of_the_cache(places: tuple[Path, Path]) -> None:
    prebuilt, cache = places
    compiled = put(cache)
    assert build.built(ONECCL) == compiled
    came_along = put(prebuilt)
    assert build.built(ONECCL) == came_along


def test_a_backend_for_another_torch_is_not_taken(places: tuple[Path, Path]) -> None:
    put(places[1])
    with mock.patch("importlib.metadata.version", return_value="2.9.0"):
        assert build.built(ONECCL) is None


def test_the_cache_is_below_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert build.cache() == Path("/home/somebody/.cache/cpufinetune/ccl")


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    with pytest.raises(CclError, match="no home folder"):
        build.cache()


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_backend_that_others_can_replace_is_not_taken(places: tuple[Path, Path], mode: int) -> None:
    compiled = put(places[1])
    compiled.parent.chmod(mode)
    assert build.built(ONECCL) is None
    compiled.parent.chmod(0o755)
    assert build.built(ONECCL) == compiled
    compiled.chmod(mode)
    assert build.built(ONECCL) is None
