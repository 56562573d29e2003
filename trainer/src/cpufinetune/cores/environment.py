"""What a layout means to a process (environment variables) and to a reader (lines)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.cores.cpulist import format_cpus

if TYPE_CHECKING:
    from cpufinetune.cores.layout import Layout, RankLayout

_KEPT_HEAP_BYTES = 4 << 30
_KEPT_PRIMITIVES = 32


def thread_environment(rank: RankLayout) -> dict[str, str]:
    """Variables for the process of `rank`; equal for all ranks of a layout, whose thread counts are equal.

    OpenMP runtimes and glibc read theirs while the process starts. A rank forked from a warm process therefore has
    those which the warm process was *executed* with; setting them after the fork changes nothing.
    """
    threads = str(rank.threads)
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        # libiomp5 else spins 200 ms after each parallel region, on cores that communication could use; libgomp
        # ignores it. Source: Intel OpenMP reference; 1 ms is the value of the PyTorch launcher for Xeon.
        "KMP_BLOCKTIME": "1",
        # Left out: KMP_AFFINITY and OMP_PROC_BIND. Only libiomp5, where preloaded, reads the first; both bind when
        # the runtime starts, which in a forked rank is before its affinity mask is set. The mask does the pinning.
        #
        # Tokenisation is done once, ahead of training; its own threads would run on the rank's cores, and it warns
        # about forks unless told.
        "TOKENIZERS_PARALLELISM": "false",
        # By default glibc maps large activations afresh each step and gives them back when freed: a page fault for
        # each 4 KiB. Taken from a heap that is never trimmed below this size, the same pages serve every step.
        # MALLOC_MMAP_THRESHOLD_ would say so too, but older glibc silently refuses more than 32 MiB.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(_KEPT_HEAP_BYTES),
        # oneDNN and PyTorch's binding to it each keep up to 1024 compiled operations, with their buffers, one for each
        # shape met. Text has hundreds of shapes: a rank would grow by gigabytes over a run, for no speed measured.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(_KEPT_PRIMITIVES),
        "LRU_CACHE_CAPACITY": str(_KEPT_PRIMITIVES),
    }


def describe(layout: Layout) -> list[str]:
    """One line a rank, such as `rank 0: cores 0-13 (NUMA 0), 14 threads, 2 for communication`."""
    return [_line(number, rank, pinned=layout.pinned) for number, rank in enumerate(layout.ranks)]


def _line(number: int, rank: RankLayout, *, pinned: bool) -> str:
    cores = f"{'core' if len(rank.cpus) == 1 else 'cores'} {format_cpus(rank.cpus)}"
    place = "several NUMA nodes" if rank.node is None else f"NUMA {rank.node}"
    parts = [f"rank {number}: {cores} ({place})", f"{rank.threads} thread{'' if rank.threads == 1 else 's'}"]
    if rank.communication_cpus:
        parts.append(f"{len(rank.communication_cpus)} for communication")
    if not pinned:
        parts.append("shared, not pinned")
    return ", ".join(parts)
