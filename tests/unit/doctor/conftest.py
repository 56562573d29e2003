from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.cores import Cpu, Description, Isa
from cpufinetune.doctor.facts import (
    Ccl,
    Facts,
    Interface,
    Kernel,
    Network,
    Process,
    Requirement,
    SharedMemory,
    Software,
    Torch,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cpufinetune.world.interface import Address

GIB = 1 << 30
XEON = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16")

Change = Callable[..., Facts]


def _description(nodes: tuple[int, ...] = (4,), threads: int = 1, flags: tuple[str, ...] = XEON) -> Description:
    """A machine of `nodes` physical cores each; second threads are numbered after all first ones, as on Xeon."""
    places = [node for node, count in enumerate(nodes) for _ in range(count)]
    cpus = tuple(
        Cpu(id=thread * len(places) + core, core=core, node=node)
        for thread in range(threads)
        for core, node in enumerate(places)
    )
    return Description(cpus, isa=Isa.from_flags(flags), model_name="Xeon", memory_limit=64 * GIB)


@pytest.fixture
def machine() -> Callable[..., Description]:
    return _description


@pytest.fixture
def address() -> Callable[[str], Address]:
    return ipaddress.ip_interface


@pytest.fixture
def facts(address: Callable[[str], Address]) -> Change:
    """A good machine; keywords change one field of its kernel, software, oneCCL, network or process, or the ranks."""
    good = Facts(
        kernel=Kernel(_description(), shared_memory=SharedMemory(2 * GIB, 2 * GIB), huge_pages="always"),
        process=Process(),
        software=Software(
            Torch("2.9.1+cpu", openmp=("libgomp.so.1",)),
            (
                Requirement("torch", "2.8", "2.9.1"),
                Requirement("transformers", "5.0", "5.24.0"),
                Requirement("peft", "0.21", "0.21.2"),
            ),
        ),
        ccl=Ccl("2021.16.2", "CCL_ROOT", built=True, headers=True, compiler="c++"),
        network=Network((Interface("eth0", (address("192.0.2.7/24"),), 1450, 10_000),), "eth0"),
    )

    def change(**changes: Any) -> Facts:
        description = {key[1:]: changes.pop(key) for key in list(changes) if key.startswith("_")}
        changed = good
        for part in ("kernel", "process", "software", "ccl", "network"):
            now = getattr(changed, part)
            fields = {key: changes.pop(key) for key in list(changes) if key in type(now).__dataclass_fields__}
            changed = replace(changed, **{part: replace(now, **fields)})
        if description:
            kernel = replace(changed.kernel, description=replace(changed.kernel.description, **description))
            changed = replace(changed, kernel=kernel)
        return replace(changed, **changes)

    return change


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, str]], Path]:
    """Writes files (path: text) into a recorded tree and returns its root."""

    def _write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        return tmp_path

    return _write
