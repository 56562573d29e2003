"""`cpufinetune run`: the whole job on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

from cpufinetune import cores
from cpufinetune.cli import preflight
from cpufinetune.cli import workspace as workspaces
from cpufinetune.comms.choice import outlook
from cpufinetune.errors import ExitCode, JobError
from cpufinetune.job.load import load
from cpufinetune.job.parse import to_document
from cpufinetune.launch import assembly, local
from cpufinetune.launch.recorder import Recorder, open_events
from cpufinetune.report.console import make_console
from cpufinetune.report.progress import Progress

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from cpufinetune.cli.workspace import Workspace
    from cpufinetune.job.document import Job
    from cpufinetune.launch.gang import Finish


def main(options: argparse.Namespace) -> ExitCode:
    """Run the job of the given document."""
    job = load(options.file, options.overrides)
    workspace = workspaces.resolve(job, options.file, options.output, workspaces.parse_claims(options.claims))
    world = assembly.check_world(job, len(local.place_of(job, 0).layout.ranks))
    outlook(job.spec.node.backend, world)  # raises where it is hopeless
    preflight.check(job, workspace)
    with workspaces.claim_output(workspace, overwrite=options.overwrite):
        return _run(options, job, workspace, world)


def _run(options: argparse.Namespace, job: Job, workspace: Workspace, world: int) -> ExitCode:
    console = make_console(sys.stdout, clock=time.monotonic, environ=os.environ)
    recorder = Recorder(
        progress=Progress(clock=time.time),
        console=console,
        output=workspace.output,
        nodes=job.spec.nodes,
        title=f"{job.name}: {job.spec.nodes} nodes, {world} ranks, global batch {job.spec.training.batch_size}",
        job_document=to_document(job),
        machine=assembly.machine(cores.read()),
        versions=assembly.versions(),
    )
    with contextlib.ExitStack() as stack:
        template = workspace.template(job)
        # What earlier runs did belongs into the report of the one that resumes them.
        resumes = workspace.has_checkpoints() and workspace.events.is_file()
        last_attempt = recorder.replay(workspace.events) if resumes else 0
        if not resumes:
            workspace.events.unlink(missing_ok=True)
        for path in filter(None, (workspace.events, options.events)):
            recorder.sinks.append(stack.enter_context(_open_events(path)))
        finish, records = asyncio.run(local.run(job, template, recorder, last_attempt))
    recorder.finish(finish, records)
    try:
        sys.stdout.flush()
    except OSError:
        # Nobody reads any more; Python would end with an error of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if finish.code == ExitCode.OK:
        # Only now: had a rank died after the model was written, the next attempt would have started from these.
        workspace.clear()
    else:
        _explain(finish)
    return finish.code


def _open_events(path: Path) -> BinaryIO:
    try:
        return open_events(path)
    except OSError as error:
        raise JobError("EventsNotWritable", f"--events {path}: {error}", "name another file") from error


def _explain(finish: Finish) -> None:
    if finish.code == ExitCode.INTERRUPTED:
        print("stopped; run the same command again to resume", file=sys.stderr)  # noqa: T201 - the user's terminal
    elif finish.cause is not None:
        what = "gave up after too many failed attempts; " if finish.code == ExitCode.GAVE_UP else ""
        print(f"error: {what}{finish.cause}", file=sys.stderr)  # noqa: T201 - the user's terminal
