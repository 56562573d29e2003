"""What the checks judge: frozen facts, read by `gather`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpufinetune.cores import Auto, Description
    from cpufinetune.world.interface import Address


@dataclass(frozen=True, slots=True)
class Throttling:
    """Periods of the CPU quota that this container ran in, and those in which it stood still."""

    periods: int
    throttled: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The folder for it: its bytes, and why it cannot be written (empty if it can)."""

    size: int
    free: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the kernel gives.

    Attributes:
        description: The CPU as this process may use it.
        machine: Its architecture, for example x86_64.
        amx_refusal: Why the kernel does not grant AMX tiles; empty if it does, None if the CPU has none.
        strangers: Threads of our cores that are not ours: someone else may compute on them.
        throttling: None where no control group counts it.
        shared_memory: None if there is no /dev/shm.
        huge_pages: The mode of transparent huge pages, None where it cannot be read.
        clocks: Driver and governor of the frequency of our CPUs; empty where they cannot be read.
    """

    description: Description
    machine: str = "x86_64"
    amx_refusal: str | None = None
    strangers: frozenset[int] = frozenset()
    throttling: Throttling | None = None
    shared_memory: SharedMemory | None = None
    huge_pages: str | None = None
    clocks: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Process:
    """What this process was started with: its environment, and the file names of the libraries it has mapped."""

    environ: Mapping[str, str] = field(default_factory=dict)
    libraries: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that training needs: the lowest version that will do and the one found, None if there is none."""

    name: str
    lowest: str
    found: str | None


@dataclass(frozen=True, slots=True)
class Torch:
    """PyTorch as it lies on the disk: `accelerator` is CUDA, ROCm or XPU; `openmp` the runtimes in its own folder."""

    version: str
    accelerator: str = ""
    openmp: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Software:
    """Installed packages; versions are None where a package is not installed."""

    torch: Torch | None
    requirements: tuple[Requirement, ...] = ()
    ipex: str | None = None
    bindings: str | None = None


@dataclass(frozen=True, slots=True)
class Ccl:
    """oneCCL and the backend over it.

    Attributes:
        version: Its version; empty if it was not found.
        source: Where it was found.
        refusal: Why there is none, or the backend cannot be told.
        cure: What to do about that.
        built: Whether the backend is compiled.
        headers: Whether oneCCL's headers are there.
        compiler: The C++ compiler; empty if there is none.
        asked: The compiler that was looked for.
        unwritable: The folder for compiled backends, if it cannot be written.
        misfit: Which of oneCCL's variables does not fit this machine; empty if they all do.
        misfit_cure: What to do about that.
    """

    version: str = ""
    source: str = ""
    refusal: str = ""
    cure: str = ""
    built: bool = False
    headers: bool = False
    compiler: str = ""
    asked: str = "g++"
    unwritable: str = ""
    misfit: str = ""
    misfit_cure: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that has addresses; `speed` is in Mbit/s, None where the driver does not say."""

    name: str
    addresses: tuple[Address, ...]
    mtu: int | None = None
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """All interfaces with addresses; `chosen` is the one that leads out, None if none does."""

    interfaces: tuple[Interface, ...] = ()
    chosen: str | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything; `ranks` is what the asker means to run on this node."""

    kernel: Kernel
    process: Process
    software: Software
    ccl: Ccl
    network: Network
    ranks: int | Auto = "Auto"
