"""What does not fit is said at once, with its cure, before anything could hang."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SOON = 10.0  # seconds
CONFIG = "#define CCL_MAJOR_VERSION 2022\n#define CCL_MINOR_VERSION 2\n#define CCL_UPDATE_VERSION 0\n"


@pytest.fixture
def refusal(start: Any, extension: Path) -> Any:
    """Why a rank refuses a step: `refusal("register", CCL_ROOT="/nowhere")`."""

    def ask(step: str, **arguments: str) -> dict[str, str]:
        world = start(1, "flat")
        if step == "register":
            arguments["extension"] = str(extension)
        ((answer),) = world.attempt("surroundings.refusal", step=step, **arguments).values()
        assert "value" in answer, answer
        assert answer["seconds"] < SOON
        return dict(answer["value"])

    return ask


def test_an_interface_that_does_not_exist(refusal: Any) -> None:
    found = refusal("register", FI_TCP_IFACE="eth77")
    assert found["reason"] == "NoInterface"
    assert found["message"] == "FI_TCP_IFACE is eth77, which does not exist here"
    assert "lo" in found["fix"]


def test_a_worker_outside_the_cpuset(refusal: Any) -> None:
    outside = (os.cpu_count() or 1) + 100
    found = refusal("register", CCL_WORKER_AFFINITY=str(outside))
    assert found["reason"] == "WorkerOutsideCpuset"
    assert f"core {outside} is not one of this machine's or container's" in found["message"]
    assert found["fix"]


def test_a_root_that_leads_nowhere(refusal: Any, tmp_path: Path) -> None:
    found = refusal("register", CCL_ROOT=str(tmp_path))
    assert found["reason"] == "NoOneCcl"
    assert str(tmp_path) in found["message"]
    assert "unset" in found["fix"]


def test_a_version_with_another_interface(refusal: Any, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libccl.so.1").touch()
    headers = tmp_path / "include" / "oneapi" / "ccl"
    headers.mkdir(parents=True)
    (headers / "config.h").write_text(CONFIG, encoding="utf-8")
    found = refusal("register", CCL_ROOT=str(tmp_path))
    assert found["reason"] == "OneCclVersion"
    assert "oneCCL 2022.2.0 (CCL_ROOT) is not supported" in found["message"]
    assert "pip install" in found["fix"]


def test_no_compiler(refusal: Any, tmp_path: Path) -> None:
    found = refusal(
        "ensure", prebuilt=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"), PATH=str(tmp_path), CXX=""
    )
    assert found["reason"] == "NoCompiler"
    assert "there is no g++" in found["message"]
    assert "unset CXX, or install g++" in found["fix"]


def test_no_folder_for_the_compiled_backend(refusal: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = refusal("ensure", prebuilt=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "file"))
    assert found["reason"] == "NoCache"
    assert "XDG_CACHE_HOME" in found["fix"]


def test_a_compiler_that_fails(refusal: Any, tmp_path: Path) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho 'fatal error: no space left on device' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    found = refusal("ensure", prebuilt=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"), CXX=str(compiler))
    assert found["reason"] == "CompilerFailed"
    assert "no space left on device" in found["message"]
    # Nothing half made stays behind.
    assert [path.name for path in (tmp_path / "cache" / "cpufinetune" / "ccl").iterdir()] == [".lock"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="makes a library that does not load")
def test_a_backend_for_another_torch(refusal: Any, tmp_path: Path) -> None:
    source = tmp_path / "other.cpp"
    source.write_text('extern "C" { extern int of_another_torch; int* PyInit_x() { return &of_another_torch; } }\n')
    library = tmp_path / "cpufinetune_ccl.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)  # noqa: S607
    found = refusal("load", extension=str(library))
    assert found["reason"] == "NotLoadable"
    assert "does not load with torch" in found["message"]
    assert "undefined symbol: of_another_torch" in found["message"]
    assert str(tmp_path) in found["fix"]
