"""Removes what the packages of oneCCL bring beside the libraries that ranks load: 237 MB of 271.

impi-rt is all of Intel MPI, of which libfabric is used, with its providers for TCP and for shared memory. oneccl-cpu
has its library three times, under three names. Licences stay.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

from importlib import metadata
from pathlib import Path

KEPT = {
    "oneccl-cpu": {"libccl.so.1"},
    "impi-rt": {"libfabric.so.1", "libtcp-fi.so", "librxm-fi.so", "libshm-fi.so"},
}


def used(package: str, file: metadata.PackagePath) -> bool:
    """Tell whether a file is one that training opens, or one that tells of the package."""
    about = any(part == "doc" or part.endswith(".dist-info") for part in file.parts)
    return about or file.name in KEPT[package]


def main() -> None:
    """Remove all others, and the folders that are empty without them."""
    for package in KEPT:
        for file in metadata.files(package) or ():
            if not used(package, file):
                remove(Path(str(file.locate())).resolve())


def remove(path: Path) -> None:
    """Remove a file and the folders that are empty without it."""
    path.unlink(missing_ok=True)
    while path.parent.is_dir() and not any(path.parent.iterdir()):
        path = path.parent
        path.rmdir()


if __name__ == "__main__":
    main()
