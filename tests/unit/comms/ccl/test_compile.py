import os
import time
from pathlib import Path

import pytest

from cpufinetune.comms.ccl import build
from cpufinetune.comms.ccl import compile as compiling


def test_builds_that_nobody_uses_any_more_are_forgotten(tmp_path: Path) -> None:
    for name in ("torch-1-ccl-1-new", "torch-1-ccl-1-used", "torch-1-ccl-1-old", "another"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{build.MODULE}.so").touch()
    long_ago = time.time() - compiling.UNUSED_SECONDS - 60
    for name in ("torch-1-ccl-1-new", "torch-1-ccl-1-old", "another"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    compiling._forget_old(tmp_path, tmp_path / "torch-1-ccl-1-new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", "torch-1-ccl-1-new", "torch-1-ccl-1-used"]


def test_what_is_not_a_build_stays(tmp_path: Path) -> None:
    for path in ("torch-vision/setup.py", f"torch-1-ccl-1-mine/{build.MODULE}.so", "torch-1-ccl-1-mine/notes"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "torch-1-ccl-1-link").symlink_to("nowhere")
    for folder in ("torch-vision", "torch-1-ccl-1-mine"):
        os.utime(tmp_path / folder, (0, 0))
    before = sorted(tmp_path.rglob("*"))
    compiling._forget_old(tmp_path, tmp_path / "new")
    assert sorted(tmp_path.rglob("*")) == before


def test_one_that_is_used_does_not_grow_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(tmp_path, (0, 0))
    monkeypatch.setattr(build, "built", lambda _: tmp_path / "backend.so")
    assert compiling.ensure() == tmp_path / "backend.so"
    assert time.time() - tmp_path.stat().st_mtime < 60
