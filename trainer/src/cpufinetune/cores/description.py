"""The CPU as this process may use it: frozen facts, read by `sysfs` and consumed by `layout`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


class Feature(StrEnum):
    """An instruction set that decides which kernels are fast."""

    AVX2 = "AVX2"
    AVX512F = "AVX512F"
    VNNI = "VNNI"
    AVX512_BF16 = "AVX512_BF16"
    AMX_BF16 = "AMX_BF16"
    AMX_INT8 = "AMX_INT8"


_FLAGS = {
    "avx2": Feature.AVX2,
    "avx512f": Feature.AVX512F,
    "avx512_vnni": Feature.VNNI,
    "avx_vnni": Feature.VNNI,
    "avx512_bf16": Feature.AVX512_BF16,
    "amx_bf16": Feature.AMX_BF16,
    "amx_int8": Feature.AMX_INT8,
}
_AMX = frozenset({Feature.AMX_BF16, Feature.AMX_INT8})
_AMX_NEEDS = frozenset({"amx_tile", "amx_bf16"})


@dataclass(frozen=True, slots=True)
class Isa:
    """The features that every allowed CPU has."""

    features: frozenset[Feature] = frozenset()

    @classmethod
    def from_flags(cls, flags: Collection[str]) -> Isa:
        """Map flags as /proc/cpuinfo spells them; AMX counts only with the tiles and bf16 that training uses."""
        features = frozenset(_FLAGS[flag] for flag in flags if flag in _FLAGS)
        return cls(features if set(flags) >= _AMX_NEEDS else features - _AMX)

    @property
    def native_bf16(self) -> bool:
        """Whether bf16 products run in hardware; where they do not, bf16 is several times slower than fp32."""
        return bool(self.features & {Feature.AVX512_BF16, Feature.AMX_BF16})

    def __contains__(self, feature: Feature) -> bool:
        return feature in self.features

    def __str__(self) -> str:
        return " ".join(feature for feature in Feature if feature in self.features) or "none"


@dataclass(frozen=True, slots=True)
class Cpu:
    """One hardware thread: CPUs of equal `core` are SMT siblings; `node` is the NUMA node."""

    id: int
    core: int
    package: int = 0
    node: int = 0


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core; `cpus` are its allowed hardware threads, the lowest id first."""

    cpus: tuple[Cpu, ...]

    @property
    def cpu(self) -> int:
        """The id of the one hardware thread that computes."""
        return self.cpus[0].id

    @property
    def node(self) -> int:
        """The NUMA node."""
        return self.cpus[0].node


@dataclass(frozen=True, slots=True)
class Description:
    """What the kernel lets this process use.

    Attributes:
        cpus: The allowed hardware threads: affinity mask ∩ cpuset ∩ online.
        quota: CFS quota in CPUs (seconds of CPU a second), the least of all ancestors; None means no limit.
        isa: Features common to all allowed CPUs.
        model_name: As /proc/cpuinfo prints it, or "unknown".
        memory_limit: Bytes: the least of all cgroup limits and the memory present; None if neither is known.
        shared: Whether other simulated nodes compute on the same CPUs (see `split`).
    """

    cpus: tuple[Cpu, ...]
    quota: float | None = None
    isa: Isa = Isa()
    model_name: str = "unknown"
    memory_limit: int | None = None
    shared: bool = False

    @property
    def cores(self) -> tuple[Core, ...]:
        """The physical cores, ordered by NUMA node, then by lowest allowed CPU."""
        siblings: dict[int, list[Cpu]] = {}
        for cpu in sorted(self.cpus, key=lambda cpu: cpu.id):
            siblings.setdefault(cpu.core, []).append(cpu)
        return tuple(sorted((Core(tuple(cpus)) for cpus in siblings.values()), key=lambda core: (core.node, core.cpu)))
