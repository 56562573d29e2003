"""Where oneCCL is looked for, and what is said when it is not usable."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from cpufinetune.comms.ccl import locate

if TYPE_CHECKING:
    from collections.abc import Callable

HEADER = "oneapi/ccl/config.h"
CONFIG = "#define CCL_MAJOR_VERSION {}\n#define CCL_MINOR_VERSION {}\n#define CCL_UPDATE_VERSION {}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder with files: `tree("ccl", "lib/libccl.so.1", version="2021.16.2")`; return it."""

    def make(name: str, *files: str, version: str = "") -> Path:
        root = tmp_path / name
        for file in files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).touch()
        if version:
            header = root / "include" / HEADER
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(CONFIG.format(*version.split(".")), encoding="utf-8")
        root.mkdir(exist_ok=True)
        return root

    return make


class Distribution:
    """A package that is installed in a folder."""

    def __init__(self, root: Path, version: str) -> None:
        self.root = root
        self.version = version
        self.files = [PurePosixPath(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()]

    def locate_file(self, file: PurePosixPath) -> Path:
        return self.root / file


def installed(**packages: Distribution) -> Any:
    def find(name: str) -> Distribution:
        try:
            return packages[name.replace("-", "_")]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    return mock.patch("importlib.metadata.distribution", find)


def refusal(environ: dict[str, str]) -> locate.CclError:
    with pytest.raises(locate.CclError) as caught:
        locate.find(environ)
    return caught.value


def test_ccl_root_comes_first(tree: Callable[..., Path]) -> None:
    oneapi = tree("oneapi", "ccl/latest/lib/libccl.so.1")
    root = tree("mine", "lib/libccl.so.1", version="2021.15.3")
    found = locate.find({"CCL_ROOT": str(root), "ONEAPI_ROOT": str(oneapi)})
    assert found == locate.OneCcl(root / "lib" / "libccl.so.1", root / "include", "CCL_ROOT", "2021.15.3", None)


def test_oneapi_comes_before_packages(tree: Callable[..., Path]) -> None:
    fabric = "mpi/latest/opt/mpi/libfabric/lib/libfabric.so.1"
    oneapi = tree("oneapi", "ccl/latest/lib/libccl.so.1", fabric)
    with installed(oneccl_cpu=Distribution(tree("venv"), "2021.16.2")):
        found = locate.find({"ONEAPI_ROOT": str(oneapi)})
    assert found.source == f"oneAPI in {oneapi}"
    assert found.fabric == oneapi / fabric
    # Without headers the version is in no file.
    assert (found.version, found.include) == ("unknown", None)


@pytest.mark.parametrize("folder", locate.LIBRARY_FOLDERS)
def test_the_library_for_cpus_alone_is_preferred(tree: Callable[..., Path], folder: str) -> None:
    behind = locate.LIBRARY_FOLDERS[locate.LIBRARY_FOLDERS.index(folder) :]
    root = tree("ccl", *(f"{one}/libccl.so.1" for one in behind))
    assert locate.find({"CCL_ROOT": str(root)}).library == root / folder / "libccl.so.1"


def test_packages_are_found(tree: Callable[..., Path]) -> None:
    venv = tree("venv", "lib/libccl.so.1.0", "include/oneapi/ccl.hpp", "lib/libfabric.so.1")
    (venv / "lib" / "libccl.so.1").symlink_to("libccl.so.1.0")
    package = Distribution(venv, "2021.16.2")
    with installed(oneccl_cpu=package, impi_rt=package):
        found = locate.find({"ONEAPI_ROOT": str(venv / "none")})
    assert found.library == venv / "lib" / "libccl.so.1"
    assert found.include == venv / "include"
    assert found.fabric == venv / "lib" / "libfabric.so.1"
    assert (found.source, found.version) == ("package oneccl-cpu 2021.16.2", "2021.16.2")


def test_packages_without_the_library_are_refused(tree: Callable[..., Path]) -> None:
    with installed(oneccl_cpu=Distribution(tree("venv", "readme"), "2021.16.2")):
        error = refusal({"ONEAPI_ROOT": "/nowhere"})
    assert (error.reason, error.fix) == ("NoOneCcl", locate.INSTALL)
    assert error.message == "the package oneccl-cpu 2021.16.2 has no libccl.so.1"


def test_packages_without_libfabric_are_refused(tree: Callable[..., Path]) -> None:
    with installed(oneccl_cpu=Distribution(tree("venv", "lib/libccl.so.1"), "2021.16.2")):
        assert refusal({"ONEAPI_ROOT": "/nowhere"}).message == "oneccl-cpu is installed, impi-rt with libfabric is not"


def test_nothing_is_installed() -> None:
    with installed():
        error = refusal({"ONEAPI_ROOT": "/nowhere", "CCL_ROOT": ""})
    assert (error.reason, error.fix) == ("NoOneCcl", locate.INSTALL)
    assert "neither CCL_ROOT, oneAPI nor oneccl-cpu" in error.message


def test_a_broken_root_is_not_passed_over(tree: Callable[..., Path]) -> None:
    oneapi = tree("oneapi", "ccl/latest/lib/libccl.so.1", version="2021.15.0")
    error = refusal({"CCL_ROOT": "/nowhere", "ONEAPI_ROOT": str(oneapi)})
    assert error.message == "CCL_ROOT leads to /nowhere, which has no lib/libccl.so.1"


@pytest.mark.parametrize("version", ["2021.14.0", "2021.16.2", "2021.17.1"])
def test_versions_of_the_interface_it_is_written_for(tree: Callable[..., Path], version: str) -> None:
    root = tree("ccl", "lib/libccl.so.1", version=version)
    assert locate.find({"CCL_ROOT": str(root)}).version == version


@pytest.mark.parametrize("version", ["2021.13.1", "2020.20.0", "2022.0.0", "2022.2.0"])
def test_other_versions_are_refused(tree: Callable[..., Path], version: str) -> None:
    error = refusal({"CCL_ROOT": str(tree("ccl", "lib/libccl.so.1", version=version))})
    assert error.reason == "OneCclVersion"
    assert f"oneCCL {version} (CCL_ROOT) is not supported" in error.message


def test_a_folder_that_may_not_be_entered_is_not_there() -> None:
    denied = mock.Mock(spec=Path)
    denied.is_file.side_effect = PermissionError
    assert locate._first([denied]) is None
