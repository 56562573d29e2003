"""What the images install is what the project says it needs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("extra", ["trainer", "operator"])
def test_an_image_installs_what_its_extra_names(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][extra]]
    listed = (ROOT / "image" / f"{extra}.requirements.txt").read_text(encoding="utf-8").splitlines()
    assert listed == wanted


@pytest.mark.parametrize("extra", ["trainer", "operator"])
def test_an_image_runs_as_nobody_and_keeps_no_cache(extra: str) -> None:
    lines = (ROOT / "image" / f"{extra}.Dockerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 65532:65532"
    assert sum("mountpoint -q /root/.cache || rm -rf /root/.cache" in line for line in lines) == 2
