"""`cpufinetune plan`: what would run, without running it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpufinetune.cli import preflight
from cpufinetune.cli import workspace as workspaces
from cpufinetune.comms.ccl import environment, locate
from cpufinetune.comms.choice import OURS, outlook
from cpufinetune.cores import describe, thread_environment
from cpufinetune.errors import ExitCode
from cpufinetune.job.load import load
from cpufinetune.launch import local
from cpufinetune.launch.assembly import check_world

if TYPE_CHECKING:
    import argparse

    from cpufinetune.comms.choice import Choice
    from cpufinetune.cores import Layout

MIB = 1 << 20
COMPRESSION = {
    "None": "",
    "BFloat16": ", as bfloat16; whole, as float32, among ranks that share memory, simulated nodes too",
}


def main(options: argparse.Namespace) -> ExitCode:
    """Show the plan of the given document; model and data are read, nothing is left behind."""
    job = load(options.file, options.overrides)
    workspace = workspaces.resolve(job, options.file, options.output, workspaces.parse_claims(options.claims))
    places = [local.place_of(job, node) for node in range(job.spec.nodes)]
    layout, share = places[0].layout, places[0].share
    ranks = len(layout.ranks)
    world = check_world(job, ranks)
    choice = outlook(job.spec.node.backend, world)
    preflight.check(job, workspace)
    with tempfile.TemporaryDirectory() as scratch:
        template = replace(workspace, output=Path(scratch)).template(job)
        settings = replace(
            template,
            world_size=world,
            local_world_size=ranks,
            threads=layout.ranks[0].threads,
            native_bf16=layout.isa.native_bf16,
            memory_limit=None if share.memory_limit is None else share.memory_limit // ranks,
        )
        from cpufinetune.train.estimate import forecast  # noqa: PLC0415 - imports torch, which takes seconds

        found = forecast(job, settings)
    lines = [f"node {place.index}: {line}" for place in places for line in describe(place.layout)]
    notes = sorted({note for place in places for note in place.layout.notes})
    plan = {
        "layout": lines,
        "notes": notes,
        "worldSize": world,
        "backend": choice.backend,
        "backend_reason": choice.explained,
        "environment": {**thread_environment(layout.ranks[0]), **_ccl_variables(choice, layout)},
        **asdict(found),
        "compression": job.spec.training.gradient_compression,
        "memory": {**asdict(found.memory), "total": found.memory.total},
    }
    print(json.dumps(plan, indent=2) if options.json else _text(job.name, plan))  # noqa: T201 - the answer
    return ExitCode.OK


def _ccl_variables(choice: Choice, layout: Layout) -> dict[str, str]:
    """Return what rank 0's oneCCL would be told here; in a cluster the interface is the pod's."""
    if choice.backend != "ccl":
        return {}
    # The official binding brings its own.
    oneccl = locate.find() if choice.binding == OURS else None
    workers = environment.worker_cpus(layout)
    return environment.variables(
        oneccl, interface="lo", local_rank=0, local_world_size=len(layout.ranks), workers=workers
    )


def _text(name: str, plan: dict[str, Any]) -> str:
    samples = ", ".join(f"{count} {split}" for split, count in plan["samples"].items())
    memory = plan["memory"]
    parts = ", ".join(f"{part} {memory[part] / MIB:.0f}" for part in memory if part != "total")
    limit = plan["memory_limit"]
    rows = [
        ("layout", "\n".join([*plan["layout"], *(f"note: {note}" for note in plan["notes"])])),
        ("ranks", f"{plan['worldSize']} over {plan['backend']} ({plan['backend_reason']})"),
        ("precision", f"{plan['precision']} ({plan['precision_reason']})"),
        ("intel", plan["intel"]),
        ("samples", f"{samples}; {len(plan['classes'])} classes"),
        ("steps", f"{plan['total_steps']} ({plan['steps_per_epoch']} an epoch)"),
        ("padding", f"{plan['padding_share']:.1%} of the computed tokens"),
        ("micro-batch", f"{plan['micro_batch_size']} samples a rank"),
        ("parameters", f"{plan['parameters'] / 1e6:.1f} M, {plan['trainable_parameters'] / 1e6:.2f} M trained"),
        ("memory", f"{memory['total'] / MIB:.0f} MiB a rank at its peak ({parts})"),
        ("limit", "none" if limit is None else f"{limit / MIB:.0f} MiB a rank"),
        ("wire", f"{plan['wire_bytes'] / MIB:.1f} MiB sent by each rank in a step{COMPRESSION[plan['compression']]}"),
        ("checkpoint", f"{plan['checkpoint_bytes'] / MIB:.0f} MiB each"),
        ("environment", "\n".join(f"{name}={value}" for name, value in sorted(plan["environment"].items()))),
    ]
    width = max(len(title) for title, _ in rows)
    text = [f"{title:<{width}}  {value}".replace("\n", "\n" + " " * (width + 2)) for title, value in rows]
    return "\n".join([name, *text])
