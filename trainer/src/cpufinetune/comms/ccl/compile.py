"""Compiles the backend, once for each pair of torch and oneCCL: `python -m cpufinetune.comms.ccl.compile`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import IO

import torch
from torch.utils import cpp_extension

from cpufinetune.comms.ccl import build, locate
from cpufinetune.comms.ccl.locate import CclError

FLAGS = ("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-g0")
# PyTorch's headers are most of the work: the binding, which needs still more of them, and all the rest.
BINDING = "module.cpp"
LAST_LINES = 15
WORK = ".compiling-"
# Seconds for others to compile, or for one compiler. A job must not wait for ever for what it can do without.
LONGEST = 600.0
PAUSE = 0.2
UNUSED_SECONDS = 30 * 24 * 3600
PYBIND11_NAMES = ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")


def ensure(folder: Path | None = None) -> Path:
    """Return the compiled backend; compile it if there is none yet, which takes about a minute on one core.

    Several processes may call this at once: one compiles, the others wait for it.

    Args:
        folder: where to keep it; the user's cache by default.

    Raises:
        CclError: no usable oneCCL, no headers, no compiler, or an error of the compiler.
    """
    oneccl = locate.find()
    if folder is None and (found := build.built(oneccl)) is not None:
        with contextlib.suppress(OSError):  # the image's, which never grows old
            os.utime(found.parent)
        return found
    parent = folder or build.cache()
    target = parent / build.key(oneccl)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / ".lock").open("w") as lock:
            _await(lock)
            if not build.trusted(target / f"{build.MODULE}.so"):
                _compile(oneccl, parent, target)
                if folder is None:
                    _forget_old(parent, target)
    except OSError as error:
        raise CclError(
            "NoCache",
            f"the backend cannot be kept in {parent}: {error}",
            "point XDG_CACHE_HOME at a folder that can be written",
        ) from error
    return target / f"{build.MODULE}.so"


def _await(lock: IO[str]) -> None:
    deadline = time.monotonic() + LONGEST
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise CclError(
                    "CompilerBusy",
                    f"another process has been compiling the oneCCL backend for {LONGEST:.0f} s",
                    f"end the process that holds {lock.name}",
                ) from None
            time.sleep(PAUSE)
        else:
            return


def _forget_old(parent: Path, new: Path) -> None:
    """Remove builds that nobody has used for long, such as those for a torch that is gone."""
    for path in parent.glob("torch-*-ccl-*"):
        old = path.is_dir() and time.time() - path.stat().st_mtime > UNUSED_SECONDS
        if old and path != new and [file.name for file in path.iterdir()] == [f"{build.MODULE}.so"]:
            shutil.rmtree(path, ignore_errors=True)


def _compile(oneccl: locate.OneCcl, parent: Path, target: Path) -> None:
    compiler = build.compiler()
    if shutil.which(compiler) is None:
        raise CclError(
            "NoCompiler",
            f"the oneCCL backend is not compiled for this torch yet, and there is no {compiler} to do it",
            "unset CXX, or install g++ 11 or newer, or use the trainer image, which has it compiled",
        )
    if oneccl.include is None:
        raise CclError("NoHeaders", f"oneCCL ({oneccl.source}) is installed without its headers", locate.INSTALL)
    for stale in parent.glob(f"{WORK}*"):
        shutil.rmtree(stale, ignore_errors=True)  # of one that was killed; nobody else compiles now
    with tempfile.TemporaryDirectory(dir=parent, prefix=WORK) as temporary:
        work = Path(temporary)
        rest = work / "rest.cpp"
        sources = sorted(path for path in build.SOURCES.glob("*.cpp") if path.name != BINDING)
        rest.write_text("".join(f'#include "{path}"\n' for path in sources))
        _run(_commands(compiler, oneccl, (build.SOURCES / BINDING, rest), work))
        out = work / "out"
        out.mkdir()
        _run([_link(compiler, oneccl, work, out / f"{build.MODULE}.so")])
        # Whatever the umask is: see `build.trusted`.
        out.chmod(0o755)
        (out / f"{build.MODULE}.so").chmod(0o644)
        # Whole or not at all: another process may look at any time.
        shutil.rmtree(target, ignore_errors=True)
        out.rename(target)


def _commands(compiler: str, oneccl: locate.OneCcl, units: tuple[Path, ...], work: Path) -> list[list[str]]:
    includes = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"], str(oneccl.include)]
    # As system headers, whose warnings are not ours.
    searched = [part for include in includes for part in ("-isystem", include)]
    # Older versions of torch say by what pybind11 of theirs is to be recognised.
    names = {name: getattr(torch._C, f"_PYBIND11_{name}", None) for name in PYBIND11_NAMES}  # noqa: SLF001
    recognised = [f'-DPYBIND11_{name}="{value}"' for name, value in names.items() if value is not None]
    return [
        [
            compiler,
            *FLAGS,
            *recognised,
            f"-I{build.SOURCES}",
            *searched,
            "-c",
            str(unit),
            "-o",
            str(work / f"{unit.stem}.o"),
        ]
        for unit in units
    ]


def _link(compiler: str, oneccl: locate.OneCcl, work: Path, out: Path) -> list[str]:
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch_python"]
    # The kind of path that comes before LD_LIBRARY_PATH, in which images of oneAPI have another oneCCL.
    path = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{oneccl.library.parent}"]
    ccl = [f"-L{oneccl.library.parent}", f"-l:{oneccl.library.name}", *path]
    objects = [str(path) for path in sorted(work.glob("*.o"))]
    return [compiler, "-shared", *objects, f"-L{cpp_extension.TORCH_LIB_PATH}", *libraries, *ccl, "-o", str(out)]


def _run(commands: list[list[str]]) -> None:
    """Run all at once; show the last lines of one that fails."""
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # noqa: S603 - compiler
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=LONGEST)[0] for process in running]
    except subprocess.TimeoutExpired as error:
        for process in running:
            process.kill()
            process.wait()
        message = f"compiling the oneCCL backend took more than {LONGEST:.0f} s"
        raise CclError("CompilerFailed", message) from error
    for command, process, output in zip(commands, running, outputs, strict=True):
        if process.returncode != 0:
            said = output.splitlines() or [f"{command[0]} ended with {process.returncode}"]
            errors = [line for line in said if "error" in line] or said
            raise CclError("CompilerFailed", "\n".join(["the oneCCL backend does not compile:", *errors[:LAST_LINES]]))


if __name__ == "__main__":
    # An argument is the folder to put it in, for images.
    print(ensure(Path(sys.argv[1]) if sys.argv[1:] else None))  # noqa: T201 - the answer of the command
