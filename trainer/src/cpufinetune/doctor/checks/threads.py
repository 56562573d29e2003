"""What a process is started with: allocator, OpenMP runtime, and variables that overrule the layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.cores import thread_environment
from cpufinetune.doctor.check import note, ok, problem
from cpufinetune.doctor.checks.layout import layout_of, plural, rank_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.facts import Facts

ALLOCATORS = ("libtcmalloc", "libjemalloc", "libmimalloc")
RUNTIMES = ("libiomp5", "libgomp", "libomp")
THREADS = "_NUM_THREADS"
UNBOUND = {"", "false", "none", "disabled"}
# Each of them binds threads as the runtime starts.
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")
INTEL_BINDING = "KMP_AFFINITY"


def examine(facts: Facts) -> list[Check]:
    """Judge what the process was started with."""
    return [_preload(facts), _allocator(facts), _openmp(facts), _threads(facts), _binding(facts)]


def _stem(file: str) -> str:
    """Return a library's name without folder and version: a link leads to a file of a longer name."""
    return file.rpartition("/")[2].partition(".so")[0]


def _mapped(facts: Facts, names: Iterable[str]) -> list[str]:
    """Return those mapped libraries whose name begins with one of `names`."""
    return [file for file in sorted(facts.process.libraries) if file.startswith(tuple(names))]


def _preload(facts: Facts) -> Check:
    asked = facts.process.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    mapped = {_stem(file) for file in facts.process.libraries}
    missing = [file for file in asked if _stem(file) not in mapped]
    if missing:
        cost = "the loader goes on without it: what it should have made faster is not"
        return note("LD_PRELOAD", f"{' '.join(missing)} was not loaded", cost, "install it, or correct the path")
    return ok("LD_PRELOAD", " ".join(asked) or "not set")


def _allocator(facts: Facts) -> Check:
    preloaded = _mapped(facts, ALLOCATORS)
    # Ranks have glibc keep its heap (cores.thread_environment), which is what the others are preloaded for.
    return ok("allocator", f"{', '.join(preloaded)}, preloaded" if preloaded else "glibc, told to keep its heap")


def _openmp(facts: Facts) -> Check:
    preloaded, torch = _mapped(facts, RUNTIMES), facts.software.torch
    if preloaded:
        return ok("OpenMP", f"{', '.join(preloaded)}, preloaded")
    if torch is not None and torch.openmp:
        return ok("OpenMP", f"{', '.join(torch.openmp)} of torch")
    return ok("OpenMP", "that of the system")


def _threads(facts: Facts) -> Check:
    """Compare the variables with the layout; ranks get the layout's, other programs do not."""
    name, layout, cpus = "threads", layout_of(facts), len(facts.kernel.description.cpus)
    if layout is None:
        return ok(name, "no layout to compare with")
    variables = [key for key in thread_environment(layout.ranks[0]) if key.endswith(THREADS)]
    given = {key: facts.process.environ[key] for key in variables if facts.process.environ.get(key)}
    value = " ".join(f"{key}={text}" for key, text in given.items())
    planned = layout.ranks[0].threads
    # Nested parallelism has a number for each level, of which the first counts.
    counts = {text.partition(",")[0].strip() for text in given.values()}
    cure = f"unset {' '.join(given)}"
    if any(count.isdecimal() and int(count) > cpus for count in counts):
        cost = f"more threads than the {plural(cpus, 'CPU')} here: whatever obeys it crawls; ranks get {planned} each"
        return problem(name, value, cost, cure)
    if counts - {str(planned)}:
        cost = f"it contradicts the layout: ranks get {plural(planned, 'thread')} each, other programs what is set"
        return note(name, value, cost, cure)
    return ok(name, value or f"not set; ranks get {planned} each")


def _binding(facts: Facts) -> Check:
    name, environ = "thread binding", facts.process.environ
    intel = any(_stem(file) == "libiomp5" for file in facts.process.libraries)
    keys = [key for key in (*BINDING, *([INTEL_BINDING] if intel else [])) if key in environ]
    bound = {key: environ[key] for key in keys if environ[key].strip().lower() not in UNBOUND}
    if not bound:
        return ok(name, "left to the layout")
    cost = "OpenMP chooses cores before ranks are given theirs: threads of all ranks land on the same cores"
    complain = problem if rank_count(facts) > 1 else note
    return complain(name, " ".join(f"{key}={text}" for key, text in bound.items()), cost, f"unset {' '.join(bound)}")
