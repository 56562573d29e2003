"""The cluster's programs, built once from the Go modules in `../programs` and kept in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODULES = Path(__file__).parents[1] / "programs"
LOCK = ".lock"
LOCK_PAUSE = 0.2
BEAT_SECONDS = 20.0
STOP_SECONDS = 10.0
LINES_OF_OUTPUT = 20
COLD = "a quarter of an hour"


class ProgramsError(Exception):
    """The programs cannot be built here; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """A main package, and the folder below `MODULES` whose go.mod pins it."""

    name: str
    module: str
    package: str


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}")


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubelet"),
    _kubernetes("kube-proxy"),
    _kubernetes("kubectl"),
    Program("coredns", "coredns", "github.com/coredns/coredns"),
)
MODULE_NAMES = tuple(sorted({program.module for program in PROGRAMS}))


def programs(say: Callable[[str], None] = print) -> Path:
    """Return the folder that holds every one of `PROGRAMS`; build what is not there yet.

    Args:
        say: is given lines about the progress; none when nothing has to be built.
    """
    go, version = find_go(needed_go(MODULES))
    folder = cache_root() / cache_key(MODULES, version)
    if not missing(folder):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder / LOCK, say) as lock:
        for number, program in enumerate(PROGRAMS, start=1):
            if program in missing(folder):
                say(f"building {program.name} ({number} of {len(PROGRAMS)}); a cold build takes about {COLD}")
                started = time.monotonic()
                _build(go, program, folder, lock, say)
                say(f"built {program.name} in {time.monotonic() - started:.0f} s")
    return folder


def missing(folder: Path) -> tuple[Program, ...]:
    """Programs that `folder` lacks; one that is there is whole, because it got its name when it was finished."""
    return tuple(program for program in PROGRAMS if not (folder / program.name).is_file())


def cache_root() -> Path:
    """Where the folders of programs are, by the XDG base directory specification."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification has relative paths ignored.
    root = configured if configured.is_absolute() else Path.home() / ".cache"
    return root / "cpufinetune" / "programs"


def cache_key(modules: Path, go: tuple[int, ...]) -> str:
    """Name what decides the programs' content: pinned sources, flags, and Go without its patch release.

    GOFLAGS is left out: what people set there (-p, -mod, -buildvcs) changes how, not what, is built.
    """
    parts = [f"go{go[0]}.{go[1]}".encode()]
    for module in MODULE_NAMES:
        parts += [module.encode(), *(flag.encode() for flag in flags(modules, module))]
        parts += [(modules / module / name).read_bytes() for name in ("go.mod", "go.sum")]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()[:16]


def flags(modules: Path, module: str) -> list[str]:
    """Flags of `go build` for the programs of `module`."""
    linked = ["-s", "-w"]
    if module == "kubernetes":
        # Kubernetes' own build stamps its version in; unstamped programs call themselves v0.0.0.
        version, major, minor = kubernetes_version(modules)
        for name, value in (("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)):
            linked += ["-X", f"k8s.io/component-base/version.{name}={value}"]
        linked += ["-X", f"k8s.io/client-go/pkg/version.gitVersion={version}"]
    return ["-buildvcs=false", "-trimpath", "-ldflags", " ".join(linked)]


def kubernetes_version(modules: Path) -> tuple[str, str, str]:
    """Version, major and minor of the Kubernetes that is pinned, such as `("v1.35.4", "1", "35")`."""
    path = modules / "kubernetes" / "go.mod"
    pattern = r"^\s*(?:require\s+)?k8s\.io/kubernetes\s+(v(\d+)\.(\d+)\.\S+)"
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise ProgramsError(f"{path} does not require k8s.io/kubernetes, whose version the programs are to have")
    return found[1], found[2], found[3]


def needed_go(modules: Path) -> tuple[int, ...]:
    """Oldest Go that builds every module."""
    texts = [(modules / module / "go.mod").read_text(encoding="utf-8") for module in MODULE_NAMES]
    return max(_version(line) for text in texts for line in re.findall(r"^go\s+(\S+)", text, re.MULTILINE))


def find_go(needed: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Path and version of the Go that is installed."""
    wanted = f"the test cluster's programs are built with Go {_text(needed)} or newer"
    cure = (
        "install the Go release for Linux from go.dev/dl, and put its bin folder first on PATH "
        "(the packages of most distributions are older)"
    )
    go = shutil.which("go")
    if go is None:
        raise ProgramsError(f"{wanted}, and there is no `go` on PATH: {cure}")
    asked = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=_env()
    )
    found = _version(asked.stdout)
    if not found:
        raise ProgramsError(f"{wanted}, and {go} does not tell its version: {asked.stdout}{asked.stderr}".rstrip())
    if found < needed:
        raise ProgramsError(f"{wanted}, and {go} is Go {_text(found)}: {cure}")
    return go, found


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(number or 0) for number in found.groups()) if found else ()


def _text(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)


def _env() -> dict[str, str]:
    # A go.work above this tree would replace what go.mod pins, and another toolchain would belie the cache's key.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


@contextlib.contextmanager
def _only_one(path: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Let one process build; give the lock's descriptor."""
    with path.open("w", encoding="utf-8") as lock:
        told = -BEAT_SECONDS
        started = time.monotonic()
        while not _taken(lock):
            waited = time.monotonic() - started
            if waited - told >= BEAT_SECONDS:
                say(f"waiting for another build of the same programs, {waited:.0f} s so far")
                told = waited
            time.sleep(LOCK_PAUSE)
        try:
            yield lock.fileno()
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _build(go: str, program: Program, folder: Path, lock: int, say: Callable[[str], None]) -> None:
    unfinished = folder / f".{program.name}.building"
    # Go refuses to write over a file that is not a program, such as half of one.
    unfinished.unlink(missing_ok=True)
    module = MODULES / program.module
    command = [go, "build", *flags(MODULES, program.module), "-o", str(unfinished), program.package]
    with tempfile.TemporaryFile() as output:
        # Go holds the lock as well: should this process be killed, the next build waits for the one left behind.
        process = subprocess.Popen(
            command, cwd=module, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_env(), pass_fds=[lock]
        )
        status = _wait(process, program, say)
        if status:
            unfinished.unlink(missing_ok=True)
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines()[-LINES_OF_OUTPUT:]
            ended = f"`go build {program.package}` in {module} ended with status {status}"
            raise ProgramsError("\n".join([f"{ended}; the end of its output:", *lines]))
    unfinished.rename(folder / program.name)


def _wait(process: subprocess.Popen[bytes], program: Program, say: Callable[[str], None]) -> int:
    started = time.monotonic()
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(BEAT_SECONDS)
            say(f"still building {program.name}, {time.monotonic() - started:.0f} s so far")
    except BaseException:
        _stop(process)
        raise


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt Go, which then removes its temporary files."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
