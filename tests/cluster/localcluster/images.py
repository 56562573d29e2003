"""Container images for a cluster on a machine that has no registry: a base, what is built on it, and their archives.

Everything goes through buildah as root. Images stay in its store and archives in the user's cache, where a second run
finds them; processes that want the same at once wait for each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster.reach import Mount, Source, lend, machine_source, xdg
from localcluster.tools import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Say = Callable[[str], None]

PAUSE = "localhost/pause:1"
PAUSE_SOURCE = Path(__file__).with_name("pause.c")
PAUSE_DOCKERFILE = 'FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n'
PACKAGES = ("python3", "python3-venv", "ca-certificates", "libgomp1", "libnuma1")
# Files below these are of no use in a container, or tell about this machine.
EMPTIED = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
)
BLANKED = ("etc/apt/sources.list", "etc/hostname", "etc/resolv.conf")
# Builds mount settings and caches here.
MOUNT_POINTS = ("root/.cache", "root/.config")
# Ubuntu has python3-venv in universe; other components only make for longer package lists.
COMPONENTS = ("main", "universe")
LINES_OF_OUTPUT = 30


class ImageError(Exception):
    """An image cannot be made here; the text ends with what the failing program said last."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides the content of the base image. Which mirror the packages come from does not."""

    suite: str
    architecture: str
    packages: tuple[str, ...] = PACKAGES
    emptied: tuple[str, ...] = (*EMPTIED, *BLANKED)
    mount_points: tuple[str, ...] = MOUNT_POINTS

    @classmethod
    def of_machine(cls) -> Recipe:
        system = platform.freedesktop_os_release()
        if "VERSION_CODENAME" not in system:
            raise ImageError(f"{system['NAME']} names no suite to bootstrap: run this on a release of Debian or Ubuntu")
        return cls(system["VERSION_CODENAME"], platform.machine())

    def image(self) -> str:
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        return f"localhost/cft-base:{digest[:12]}"


def pause_image(say: Say = print) -> Path:
    """Archive of `PAUSE`, a static program that holds a pod's namespaces."""
    digest = hashlib.sha256(PAUSE_SOURCE.read_bytes() + PAUSE_DOCKERFILE.encode()).hexdigest()
    path = archives() / f"pause.{digest[:12]}.tar"
    with _alone("pause"):
        if not path.exists():
            with _timed(say, f"build {PAUSE}"), tempfile.TemporaryDirectory() as folder:
                context = Path(folder)
                _run("cc", "-static", "-O2", "-s", "-o", str(context / "pause"), str(PAUSE_SOURCE))
                # It is another user's in the image, whatever this one's umask.
                (context / "pause").chmod(0o755)
                (context / "Dockerfile").write_text(PAUSE_DOCKERFILE, encoding="utf-8")
                _run(*bud_arguments(context / "Dockerfile", context, PAUSE, {}, []))
                _push(PAUSE, path)
    return path


def base_image(say: Say = print) -> str:
    """Name of the image of this machine's own Debian or Ubuntu with Python, which is bootstrapped if need be."""
    recipe = Recipe.of_machine()
    name = recipe.image()
    if not _find(name):
        with _alone("base"):
            if not _find(name):
                with _timed(say, f"bootstrap {name} from {recipe.suite}"):
                    _bootstrap(recipe, name)
    return name


def build(
    dockerfile: Path,
    context: Path,
    name: str,
    arguments: Mapping[str, str] | None = None,
    *,
    target: str = "",
    say: Say = print,
) -> None:
    """Build an image as `name`, on the base image unless `arguments` say otherwise; of stages, the last or `target`.

    Inside, pip, uv and apt of the root user reach what they reach on this machine, and share its caches.

    Raises:
        ImageError: the build fails.
    """
    given = dict(arguments or {})
    if "BASE_IMAGE" not in given:
        given["BASE_IMAGE"] = base_image(say)
    with _timed(say, f"build {name}"), tempfile.TemporaryDirectory() as folder:
        mounts = lend(Path(folder), Recipe.of_machine().suite)
        # buildah may take a relative name for one below the context.
        _run(*bud_arguments(dockerfile.absolute(), context, name, given, mounts, target=target))


def image_id(name: str) -> str:
    """The 64 digits that identify the image which is called `name` now."""
    identity = _find(name)
    if not identity:
        raise ImageError(f"there is no image {name}: build it first")
    return identity


def archive(name: str, say: Say = print) -> Path:
    """OCI archive of the image `name`, under a file name that no other image has. Archives of its forerunners go."""
    label = name.rpartition("/")[2].replace(":", "-")
    with _alone(label):
        path = archives() / f"{label}.{image_id(name)}.tar"
        if not path.exists():
            # They can be gigabytes, and every change of the code makes a new one.
            for old in archives().glob(f"{label}.*.tar"):
                old.unlink()
            with _timed(say, f"archive {name}"):
                _push(name, path)
    return path


def archives() -> Path:
    """The folder of archives."""
    folder = xdg("CACHE") / "cpufinetune" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def bud_arguments(
    dockerfile: Path,
    context: Path,
    name: str,
    arguments: Mapping[str, str],
    mounts: Sequence[Mount],
    *,
    target: str = "",
) -> list[str]:
    """The command that builds an image."""
    return [
        *("buildah", "bud", "--layers", "--pull-never", "--network=host"),
        *(mount.argument() for mount in mounts),
        *(f"--build-arg={key}={value}" for key, value in arguments.items()),
        *([f"--target={target}"] if target else []),
        *(f"--tag={name}", f"--file={dockerfile}", str(context)),
    ]


def debootstrap_arguments(recipe: Recipe, source: Source, root: Path) -> list[str]:
    """The command that installs a system into the folder `root`."""
    components = [component for component in source.components if component in COMPONENTS]
    options = [f"--components={','.join(components)}", f"--include={','.join(recipe.packages)}"]
    return ["debootstrap", "--variant=minbase", *options, recipe.suite, str(root), source.uri]


def push_arguments(name: str, path: Path) -> list[str]:
    """The command that archives an image.

    buildah writes no uncompressed OCI archives (it takes --disable-compression and compresses). Of what it does write,
    zstd is quickest to import: gzip takes containerd half as long again.
    """
    return ["buildah", "push", "--quiet", "--compression-format=zstd", name, f"oci-archive:{path}:{name}"]


def _bootstrap(recipe: Recipe, name: str) -> None:
    source = machine_source(recipe.suite)
    if not source:
        raise ImageError(f"apt takes {recipe.suite} from no mirror here: add one to /etc/apt/sources.list")
    container = "cft-base-bootstrap"
    # One may be left by a process that was killed.
    for left in _ask("buildah", "containers", "--quiet", f"--filter=name={container}").split():
        _run("buildah", "rm", left)
    _run("buildah", "from", f"--name={container}", "scratch")
    try:
        root = Path(_ask("buildah", "mount", container))
        try:
            _run(*debootstrap_arguments(recipe, source, root))
        except ImageError as error:
            log = root / "debootstrap" / "debootstrap.log"
            raise ImageError(f"{error}\n{_tail(log.read_text(errors='replace')) if log.exists() else ''}") from None
        _tidy(root, recipe)
        _run("buildah", "commit", "--quiet", container, name)
    finally:
        _run("buildah", "rm", container)


def _tidy(root: Path, recipe: Recipe) -> None:
    for folder in EMPTIED:
        for path in (root / folder).rglob("*"):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
    for file in BLANKED:
        (root / file).write_bytes(b"")
    for folder in recipe.mount_points:
        (root / folder).mkdir(mode=0o700)


def _find(name: str) -> str:
    found = _ask("buildah", "images", "--quiet", "--no-trunc", f"--filter=reference={name}").split()
    return found[0].removeprefix("sha256:") if found else ""


def _push(name: str, path: Path) -> None:
    # buildah adds to an archive that is there, such as half of one.
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    _run(*push_arguments(name, unfinished))
    unfinished.rename(path)


def _run(*command: str) -> None:
    """Run a command; show nothing of what it prints unless it fails."""
    _call(command, subprocess.STDOUT)


def _ask(*command: str) -> str:
    """Run a command for what it prints."""
    return _call(command, subprocess.PIPE).strip()


def _call(command: Sequence[str], errors: int) -> str:
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": _storage_driver()}
    done = subprocess.run(
        [find(command[0]), *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )
    if done.returncode:
        shown = " ".join(command[:2])
        output = done.stdout + (done.stderr or "")
        raise ImageError(f"`{shown}` ended with status {done.returncode}; the end of its output:\n{_tail(output)}")
    return done.stdout


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-LINES_OF_OUTPUT:])


@functools.cache
def _storage_driver() -> str:
    """Overlay unless buildah cannot use it here, as on an overlay; vfs works everywhere and copies every layer."""
    command = [find("buildah"), "--storage-driver=overlay", "images", "--quiet"]
    works = subprocess.run(command, capture_output=True, check=False).returncode == 0
    return os.environ.get("STORAGE_DRIVER") or ("overlay" if works else "vfs")


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    with (archives() / f".{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _timed(say: Say, step: str) -> Iterator[None]:
    say(f"{step} ...")
    started = time.monotonic()
    yield
    say(f"{step}: {time.monotonic() - started:.1f} s")
