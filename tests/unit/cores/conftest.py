from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cpufinetune.cores import Cpu, Description, Isa

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path


def _machine(
    nodes: Sequence[int] = (4,),
    *,
    threads: int = 1,
    keep: Collection[int] | None = None,
    quota: float | None = None,
    memory: int | None = None,
) -> Description:
    """A machine of `nodes` physical cores each; second threads are numbered after all first ones, as on Xeon."""
    places = [node for node, count in enumerate(nodes) for _ in range(count)]
    cpus = [
        Cpu(id=thread * len(places) + core, core=core, package=node // 2, node=node)
        for thread in range(threads)
        for core, node in enumerate(places)
    ]
    allowed = tuple(cpu for cpu in cpus if keep is None or cpu.id in keep)
    return Description(allowed, quota, Isa.from_flags({"avx2", "avx512f"}), "Xeon", memory)


@pytest.fixture
def machine() -> Callable[..., Description]:
    return _machine


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
