"""What the images install is what the project says it needs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED_ALWAYS, EXTRAS = PROJECT["dependencies"], PROJECT["optional-dependencies"]
LISTS = {
    "trainer": [*NEEDED_ALWAYS, *EXTRAS["trainer"]],
    "trainer-intel": EXTRAS["intel"],
    "operator": [*NEEDED_ALWAYS, *EXTRAS["operator"]],
}
EMPTIES_CACHE = "mountpoint -q /root/.cache || rm -rf /root/.cache"


def listed(name: str) -> list[str]:
    return (ROOT / "image" / f"{name}.requirements.txt").read_text(encoding="utf-8").splitlines()


def stages(image: str) -> dict[str, list[str]]:
    """Return the lines of a Dockerfile's stages by their names, in order; the name is empty where there is none."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "image" / f"{image}.Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("FROM "):
            found[line.partition(" AS ")[2]] = []
        elif found:
            found[list(found)[-1]].append(line)
    return found


@pytest.mark.parametrize("name", LISTS)
def test_an_image_installs_what_its_extra_names(name: str) -> None:
    assert listed(name) == LISTS[name]


def test_of_oneccl_the_image_has_all_but_the_headers() -> None:
    headers = listed("trainer-ccl-build")
    assert [line.partition("==")[0] for line in headers] == ["oneccl-cpu-devel"]
    assert [*listed("trainer-ccl"), *headers] == EXTRAS["ccl"]


def test_the_trainer_is_built_with_the_newest_torch_unless_another_target_is_named() -> None:
    assert list(stages("trainer"))[-1] == "upstream"


@pytest.mark.parametrize(("image", "target"), [("trainer", "upstream"), ("trainer", "intel"), ("operator", "")])
def test_an_image_runs_as_nobody(image: str, target: str) -> None:
    lines = stages(image)[target]
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 65532:65532"


def test_an_image_keeps_no_cache() -> None:
    operator = (ROOT / "image" / "operator.Dockerfile").read_text(encoding="utf-8")
    assert operator.count(EMPTIES_CACHE) == operator.count("uv pip install")
    assert EMPTIES_CACHE in (ROOT / "image" / "install").read_text(encoding="utf-8")
    # All else goes through that.
    assert "pip install" not in (ROOT / "image" / "trainer.Dockerfile").read_text(encoding="utf-8")
