"""What is said of a machine that lacks tools, with real folders in place of the system's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from localcluster import tools as subject
from localcluster.tools import CNI_PLUGINS, PACKAGES, ToolsError, cni_folder, complaint, find, require_tools

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

EVERYTHING = [tool for tools in PACKAGES.values() for tool in tools]
ALL_PACKAGES = (
    "containerd runc containernetworking-plugins nftables buildah debootstrap iproute2 iptables procps util-linux "
    "mount gcc libc6-dev"
)
INSTALL = "apt-get install --no-install-recommends"


def make(folder: Path, names: Iterable[str], mode: int = 0o755) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()
        (folder / name).chmod(mode)


@pytest.fixture(name="machine", autouse=True)
def fixture_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a machine with nothing: `bin` is on PATH, `sbin` is not, plugins may be in `cni` or `opt`."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(subject, "ADMIN_FOLDERS", (str(tmp_path / "sbin"),))
    monkeypatch.setattr(subject, "CNI_FOLDERS", (tmp_path / "cni", tmp_path / "opt"))
    return tmp_path


def test_a_whole_machine_has_nothing_to_complain_of(machine: Path) -> None:
    make(machine / "bin", EVERYTHING[::2])
    make(machine / "sbin", EVERYTHING[1::2])
    make(machine / "opt", CNI_PLUGINS)
    assert complaint(root=True) == ""


def test_all_that_is_missing_is_in_one_message(machine: Path) -> None:
    assert complaint(root=False).splitlines() == [
        "the test cluster needs, and does not have:",
        "  root: it makes namespaces, mounts and network devices; run this as root",
        *(f"  the program {tool}" for tool in EVERYTHING),
        f"  the CNI plugins bridge, host-local, loopback in {machine / 'cni'} or {machine / 'opt'}",
        f"install with: {INSTALL} {ALL_PACKAGES}",
    ]
    with pytest.raises(ToolsError, match="install with"):
        require_tools()


@pytest.mark.parametrize(
    ("tools", "plugins", "user", "last"),
    [
        pytest.param(["ctr"], [], "root", f"{INSTALL} containerd", id="one of a package's two"),
        pytest.param([], ["loopback"], "root", f"{INSTALL} containernetworking-plugins", id="a plugin"),
        pytest.param(["nft", "runc"], [], "root", f"{INSTALL} runc nftables", id="programs of two packages"),
        pytest.param(["cc"], [], "root", f"{INSTALL} gcc libc6-dev", id="a compiler without a library to link"),
        pytest.param([], [], "other", "run this as root", id="only root"),
    ],
)
def test_only_what_is_missing_is_installed(
    machine: Path, tools: list[str], plugins: list[str], user: str, last: str
) -> None:
    make(machine / "bin", set(EVERYTHING) - set(tools))
    make(machine / "cni", set(CNI_PLUGINS) - set(plugins))
    lines = complaint(root=user == "root").splitlines()
    assert lines[-1].endswith(last)
    assert [line.split()[-1] for line in lines if "the program" in line] == [
        tool for tool in EVERYTHING if tool in tools
    ]


def test_a_program_is_found_beyond_path_and_by_its_absolute_path(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(machine / "sbin", ["nft", "ip"])
    make(machine / "bin", ["ip"])
    assert find("nft") == str(machine / "sbin" / "nft")
    assert find("ip") == str(machine / "bin" / "ip")
    monkeypatch.chdir(machine)
    monkeypatch.setenv("PATH", "bin")
    assert find("ip") == str(machine / "bin" / "ip")


@pytest.mark.parametrize(
    ("program", "end"),
    [
        pytest.param("nft", f": {INSTALL} nftables", id="with its package"),
        pytest.param("unheard-of", "sbin", id="of an unknown package"),
    ],
)
def test_an_absent_program_is_named(program: str, end: str) -> None:
    with pytest.raises(ToolsError) as caught:
        find(program)
    assert str(caught.value).startswith(f"{program} is not on PATH, nor in ")
    assert str(caught.value).endswith(end)


def test_a_file_that_cannot_be_executed_is_no_program(machine: Path) -> None:
    make(machine / "bin", ["nft"], mode=0o644)
    make(machine / "cni", CNI_PLUGINS, mode=0o644)
    with pytest.raises(ToolsError):
        find("nft")
    with pytest.raises(ToolsError, match="the CNI plugins bridge, host-local, loopback in"):
        cni_folder()


def test_the_folder_with_all_plugins_is_taken(machine: Path) -> None:
    make(machine / "cni", ["bridge"])
    make(machine / "opt", CNI_PLUGINS)
    assert cni_folder() == machine / "opt"
    make(machine / "cni", CNI_PLUGINS)
    assert cni_folder() == machine / "cni"


def test_plugins_of_two_folders_do_not_add_up(machine: Path) -> None:
    make(machine / "cni", ["bridge"])
    make(machine / "opt", ["host-local", "loopback"])
    with pytest.raises(ToolsError, match="the CNI plugin bridge in"):
        cni_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_is_told_to_be_root(machine: Path) -> None:
    make(machine / "bin", EVERYTHING)
    make(machine / "cni", CNI_PLUGINS)
    require_tools()
    os.seteuid(65534)
    try:
        with pytest.raises(ToolsError, match="run this as root"):
            require_tools()
    finally:
        os.seteuid(0)
