"""`cpufinetune fetch`: what the init container of a pod does."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cpufinetune.errors import CpuFineTuneError, ExitCode, JobError
from cpufinetune.job.load import load
from cpufinetune.job.problems import InvalidJob
from cpufinetune.launch.standing import failed_early
from cpufinetune.launch.termination import fit, write_message
from cpufinetune.world.identity import identify

if TYPE_CHECKING:
    import argparse

FOLDERS = (
    ("--job", "/etc/cpufinetune/job.yaml", "the CpuFineTune document"),
    ("--scratch", "/scratch", "folder for what is fetched"),
    ("--termination-message", "/dev/termination-log", "file for the last word"),
    ("--token-file", "/var/run/secrets/cpufinetune/token", "the hub's token, if there is such a file"),
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options; pods need none of them, tests do."""
    for name, default, text in FOLDERS:
        command.add_argument(name, type=Path, default=Path(default), help=f"{text} (default: {default})")
    command.add_argument("--host-name", default=socket.gethostname(), help="the pod's name (default: this host's)")


def main(options: argparse.Namespace) -> ExitCode:
    """Fetch what the document names of the hub."""
    # PID 1 has no default action for it.
    signal.signal(signal.SIGTERM, _end)
    uid = ""
    try:
        job = load(options.job, rules=False)
        uid = job.uid or ""
        # Slow to import, and not needed to say that the document is wrong.
        from cpufinetune.train.fetch import fetch  # noqa: PLC0415

        fetch(job, options.scratch, _token(options.token_file), _say)
    except (InvalidJob, CpuFineTuneError) as error:
        permanent = isinstance(error, InvalidJob | JobError)
        code = ExitCode.BAD_INPUT if permanent else ExitCode.RETRY
        _say(f"error: {error}")
        warning = write_message(options.termination_message, fit(failed_early(uid, code, error) | _node(options)))
        if warning is not None:
            _say(warning)
        return code
    return ExitCode.OK


def _end(number: int, frame: object) -> NoReturn:
    del number, frame
    sys.exit(int(ExitCode.INTERRUPTED))


def _node(options: argparse.Namespace) -> dict[str, int]:
    try:
        return {"node": identify(options.host_name).node}
    except JobError:
        return {}


def _token(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the container's log
