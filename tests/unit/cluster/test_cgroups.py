"""Control groups in folders that have the files of either version, and in the kernel's own."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from localcluster import cgroups
from localcluster.tools import find

if TYPE_CHECKING:
    from pathlib import Path

NAME = f"cft-unit-{os.getpid()}"


@pytest.fixture(name="root")
def fixture_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty folder in place of the kernel's."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    return tmp_path


def write(folder: Path, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text, encoding="utf-8")


def test_a_group_of_version_1_gets_the_processors_of_the_root(root: Path) -> None:
    write(root / "cpuset", cgroup_procs="", cpuset_cpus="0-1\n", cpuset_mems="0\n")
    write(root / "memory", cgroup_procs="")
    # The kernel makes a group's files together with its folder.
    write(root / "cpuset" / NAME, cpuset_cpus="\n", cpuset_mems="\n")
    cgroups.create(NAME)
    assert (root / "cpuset" / NAME / "cpuset.cpus").read_text(encoding="utf-8") == "0-1"
    assert (root / "cpuset" / NAME / "cpuset.mems").read_text(encoding="utf-8") == "0"
    assert (root / "memory" / NAME).is_dir()


def test_a_group_of_version_2_has_them_already(root: Path) -> None:
    write(root, cgroup_controllers="cpuset cpu", cgroup_procs="", cgroup_subtree_control="")
    write(root / NAME, cpuset_cpus="\n", cpuset_mems="\n", cgroup_procs="")
    cgroups.create(NAME)
    assert cgroups.hierarchies() == [root]
    assert (root / NAME / "cpuset.cpus").read_text(encoding="utf-8") == "\n"
    # The kernel adds up what is written; a file keeps the last.
    assert (root / "cgroup.subtree_control").read_text(encoding="utf-8") == cgroups.V2_CONTROLLERS.split()[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="groups are root's")
def test_the_kernels_groups_go_with_all_in_them() -> None:
    cgroups.create(NAME)
    groups = [hierarchy / NAME for hierarchy in cgroups.hierarchies()]
    sleeper = subprocess.Popen([find("sleep"), "100"])
    try:
        assert all(group.is_dir() for group in groups)
        for group in groups:
            (group / "below").mkdir()
        # In a frozen group of version 1, processes do not end.
        own = next((group for group in groups if (group / "below" / "freezer.state").exists()), groups[0])
        (own / "below" / "cgroup.procs").write_text(str(sleeper.pid), encoding="utf-8")
        if (own / "below" / "freezer.state").exists():
            (own / "below" / "freezer.state").write_text("FROZEN", encoding="utf-8")
        assert cgroups.processes(NAME) == {sleeper.pid}
        cgroups.kill(NAME)
        sleeper.wait(10)
    finally:
        sleeper.kill()
        sleeper.wait(10)
        cgroups.remove(NAME)
    assert not any(group.exists() for group in groups)
