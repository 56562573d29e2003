"""All-reduces and training steps over gloo and over oneCCL, in one run: `make bench-collectives`. Needs root.

Ranks are pinned, one core each; four ranks share two cores where there are no more, and ranks of different nodes share
none. Contestants take turns, and what counts are the ratios of a round, given as median and range. Writes
COLLECTIVES.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import link

from cpufinetune import cores
from cpufinetune.comms.ccl import compile as compiling
from cpufinetune.comms.ccl import locate
from cpufinetune.launch.assembly import versions

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).with_name("COLLECTIVES.md")
RANK = Path(__file__).with_name("collectives_rank.py")
SIZES = (64 << 10, 1 << 20, 8 << 20, 25 << 20, 100 << 20)
FLAT = {"CPUFINETUNE_SHARED_MEMORY": "0"}
LONGEST = 300.0
MEGABITS = 1000


def launch(size: int, *, namespaces: Sequence[str] = (), nodes: int = 1, **settings: Any) -> dict[str, Any]:
    """Run `size` ranks; return what rank 0 printed.

    Args:
        size: ranks.
        namespaces: one for each rank, else all are in this one.
        nodes: how many nodes to tell the ranks that they are on, each of which has its part of the cores.
        settings: of collectives_rank.py.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cpus = sorted(os.sched_getaffinity(0))
    local, part = size // nodes, max(1, len(cpus) // nodes)
    processes = []
    for rank in range(size):
        node, local_rank = divmod(rank, local)
        mine = [cpus[(node * part + other % part) % len(cpus)] for other in range(local)]
        one = {
            **settings,
            "rank": rank,
            "size": size,
            "port": port,
            "core": mine[local_rank],
            "local_rank": local_rank,
            "local_size": local,
            "workers": mine,
            "address": link.ADDRESSES[0] if namespaces else "127.0.0.1",
            "interface": link.INTERFACE if namespaces else "lo",
            "environment": {**settings.get("environment", {}), "CPUFINETUNE_NODE": str(node)},
        }
        command = [*(link.inside(namespaces[rank]) if namespaces else []), sys.executable, str(RANK), json.dumps(one)]
        quiet = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=quiet, text=True))
    try:
        outputs = [process.communicate(timeout=LONGEST)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise SystemExit(f"a rank of {settings} failed")
    return dict(json.loads(outputs[0].splitlines()[-1]))


def all_reduces(rounds: int, repeats: int) -> list[str]:
    """Compare all-reduces on this machine."""
    contests: dict[str, dict[str, Any]] = {
        "gloo, 2 ranks": {"size": 2, "backend": "gloo"},
        "oneCCL, 2 ranks over TCP": {"size": 2, "backend": "ccl", "environment": FLAT},
        "oneCCL, 2 ranks in shared memory": {"size": 2, "backend": "ccl"},
        "gloo, 4 ranks": {"size": 4, "backend": "gloo"},
        "oneCCL, 4 ranks over TCP": {"size": 4, "backend": "ccl", "environment": FLAT},
        "oneCCL, 4 ranks in shared memory": {"size": 4, "backend": "ccl"},
        "gloo, 4 ranks on 2 nodes": {"size": 4, "backend": "gloo", "nodes": 2},
        "oneCCL, 4 ranks on 2 nodes": {"size": 4, "backend": "ccl", "nodes": 2},
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in contests}
    for _ in range(rounds):
        for name, contest in contests.items():
            found[name].append(launch(**contest, what="all_reduce", sizes=SIZES, repeats=repeats))
    lines = ["", "## All-reduce, milliseconds", ""]
    for kind in ("float32", "bfloat16", "compressed"):
        rows = {name: runs for name, runs in found.items() if f"{kind} {SIZES[0]}" in runs[0]}
        lines += table(kind, rows, [f"{kind} {size}" for size in SIZES])
    return lines


def table(kind: str, rows: dict[str, list[dict[str, Any]]], keys: list[str]) -> list[str]:
    """Return a table of medians over the rounds, with each row's ratio to gloo of the same round at each size."""
    lines = [f"| {kind} | " + " | ".join(_size(int(key.split()[1])) for key in keys) + " |"]
    lines.append("|---" * (len(keys) + 1) + "|")
    for name, runs in rows.items():
        what = name.split(", ")[1]
        peer = rows.get(f"gloo, {what}", rows.get(f"gloo, {what.split()[0]} ranks"))
        cells = []
        for key in keys:
            cell = f"{median(run[key] for run in runs) * 1e3:.2f}"
            if peer is not None and peer is not runs:
                ratios = sorted(run[key] / other[key] for run, other in zip(runs, peer, strict=True))
                cell += f" ({median(ratios):.2f}: {ratios[0]:.2f}-{ratios[-1]:.2f})"
            cells.append(cell)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def steps(rounds: int, *, megabits: int | None, batch: int, bf16: bool) -> list[str]:
    """Compare training steps of two ranks with one rank's; over a cable if `megabits` says how fast."""
    contests: dict[str, dict[str, Any]] = {
        "no communication": {"backend": "none", "overlap": True, "compress": False},
        "gloo, no overlap": {"backend": "gloo", "overlap": False, "compress": False},
        "gloo": {"backend": "gloo", "overlap": True, "compress": False},
        "gloo, bfloat16": {"backend": "gloo", "overlap": True, "compress": True},
        "oneCCL over TCP, no overlap": {"backend": "ccl", "overlap": False, "compress": False, "environment": FLAT},
        "oneCCL over TCP": {"backend": "ccl", "overlap": True, "compress": False, "environment": FLAT},
        "oneCCL over TCP, bfloat16": {"backend": "ccl", "overlap": True, "compress": True, "environment": FLAT},
    }
    if megabits is None:
        contests["oneCCL, shared memory"] = {"backend": "ccl", "overlap": True, "compress": False}
    common: dict[str, Any] = {"what": "steps", "batch": batch, "bf16": bf16}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contests}
    with contextlib.ExitStack() as stack:
        namespaces = stack.enter_context(link.cable(megabits)) if megabits is not None else []
        for _ in range(rounds):
            alone = launch(1, **common, backend="none", overlap=True, compress=False)["step"]
            for name, contest in contests.items():
                run = launch(2, namespaces=namespaces, **common, **contest)
                found[name].append((alone / run["step"], run["step"], run["exposed"] / run["step"]))
    where = f"a cable of {megabits} Mbit/s" if megabits else "this machine"
    title = f"{'bfloat16' if bf16 else 'float32'}, {batch} x 128 tokens a rank, {where}"
    lines = [f"| {title} | efficiency, median (range) | step, ms | exposed communication |", "|---|---|---|---|"]
    for name, runs in found.items():
        rates = sorted(run[0] for run in runs)
        spread = f"{median(rates):.1%} ({rates[0]:.1%}-{rates[-1]:.1%})"
        step, exposed = median(run[1] for run in runs), median(run[2] for run in runs)
        lines.append(f"| {name} | {spread} | {step * 1e3:.0f} | {exposed:.1%} |")
    return [*lines, ""]


def main() -> None:
    """Run all comparisons and write the results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3, help="of all-reduces; training steps get one fewer")
    options.add_argument("--quick", action="store_true", help="one short round; does not write COLLECTIVES.md")
    chosen = options.parse_args()
    rounds = 1 if chosen.quick else chosen.rounds
    compiling.ensure()
    machine = cores.read()
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    about = (
        "Written by `make bench-collectives`. "
        f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}, {machine.model_name}, {len(machine.cores)} cores, {machine.isa}; "
        f"{named}, oneCCL {locate.find().version}; {rounds} rounds of all-reduces, "
        f"{max(rounds - 1, 1)} of steps, load average {os.getloadavg()[0]:.1f} at the start. "
        "In brackets: time against gloo's of the same round."
    )
    lines = [
        "# Collectives: gloo and oneCCL",
        "",
        about,
        *all_reduces(rounds, 3 if chosen.quick else 7),
        "## Training step of two ranks, one core each",
        "",
        "Efficiency is the step of one rank alone on the machine, divided by the step of two. `no communication` is",
        "two ranks that compute at once and know nothing of each other: what the machine itself leaves of two cores.",
        "",
    ]
    print("\n".join(lines), flush=True)
    for megabits in (MEGABITS, None):
        for bf16 in (False, True) if machine.isa.native_bf16 else (False,):
            lines += steps(max(rounds - 1, 1), megabits=megabits, batch=16, bf16=bf16)
            print("\n".join(lines[-10:]), flush=True)
    if not chosen.quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
