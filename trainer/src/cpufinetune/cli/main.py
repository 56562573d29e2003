"""The command line: `cpufinetune run | plan | doctor`, and what the operator's pods run: `fetch` and `pod`."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.cli import doctor, fetch, plan, pod, run
from cpufinetune.errors import CpuFineTuneError, ExitCode
from cpufinetune.job.problems import InvalidJob

if TYPE_CHECKING:
    from collections.abc import Sequence

EPILOG = """exit codes:
  0    done
  1    gave up: more failed attempts than runPolicy.backoffLimit; doctor: there is a problem
  2    bad input: the document, model, data or output needs a human
  3    runPolicy.activeDeadlineSeconds ran out
  75   pod and fetch only: try again (the kubelet does)
  143  stopped by SIGTERM or Ctrl-C after a checkpoint; run again to resume
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(
        prog="cpufinetune",
        description="Fine-tune transformers on CPUs from one YAML file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"cpufinetune {version('cpufinetune')}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, main in (
        ("run", "run a job on this machine: its nodes are simulated side by side", run.main),
        ("plan", "show what would run: layout, steps, memory and traffic", plan.main),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(main=main)
        _job_arguments(command)
        if name == "run":
            command.add_argument("--events", type=Path, help="append all events to this file, as JSON lines")
            command.add_argument("--overwrite", action="store_true", help="replace what is in the output folder")
        else:
            command.add_argument("--json", action="store_true", help="print JSON")
    for name, text, module in (
        ("doctor", "tell whether this machine is fit for training, what costs speed, and the cure", doctor),
        ("pod", "be the launcher of one pod of a job (for the operator)", pod),
        ("fetch", "fetch what a pod needs from the hub (for the operator)", fetch),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(main=module.main)
        module.add_arguments(command)
    return top


def _job_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("-f", "--file", type=Path, required=True, help="the CpuFineTune document")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        dest="overrides",
        help="change a field, for example --set training.epochs=1; an empty VALUE, like null, removes it",
    )
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        help="folder for model, checkpoints and report (default: spec.output.path, else ./NAME of the job)",
    )
    command.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        dest="claims",
        help="a folder that stands in for a claim of the cluster",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    options = parser().parse_args(arguments)
    try:
        return int(options.main(options))
    except InvalidJob as error:
        for problem in error.problems:
            print(f"{options.file}: {problem}", file=sys.stderr)  # noqa: T201 - the user's terminal
        return int(ExitCode.BAD_INPUT)
    except CpuFineTuneError as error:
        print(f"error: {error.reason}: {error}", file=sys.stderr)  # noqa: T201 - the user's terminal
        return int(error.exit_code)
