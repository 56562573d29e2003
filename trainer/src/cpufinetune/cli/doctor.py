"""`cpufinetune doctor`: whether this machine or pod is fit for training."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cpufinetune.doctor import deep
from cpufinetune.doctor.check import healthy
from cpufinetune.doctor.checks import deep as deep_checks
from cpufinetune.doctor.checks import examine
from cpufinetune.doctor.checks.layout import layout_of
from cpufinetune.doctor.gather import gather
from cpufinetune.doctor.text import as_json, as_text

if TYPE_CHECKING:
    from cpufinetune.cores import Auto

FIT, UNFIT = 0, 1


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("--output", choices=("text", "json"), default="text", help="how to print (default: text)")
    command.add_argument("--json", action="store_const", const="json", dest="output", help="the same as --output json")
    command.add_argument(
        "--ranks", type=_ranks, default="Auto", help="ranks that are to run on this node (default: one a NUMA node)"
    )
    command.add_argument(
        "--deep", action="store_true", help="also try PyTorch, its speed and oneCCL in a process; takes half a minute"
    )


def _ranks(text: str) -> int | Auto:
    if text == "Auto":
        return "Auto"
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither Auto nor 1 or more")
    return int(text)


def main(options: argparse.Namespace) -> int:
    """Print the report; return 0 if there is no problem, else 1."""
    facts = gather(ranks=options.ranks)
    checks = examine(facts)
    layout = layout_of(facts)
    if options.deep and layout is not None:
        rank = layout.ranks[0]
        checks += deep_checks.examine(deep.probe(rank), layout.isa, rank.threads)
    print(as_json(checks) if options.output == "json" else as_text(checks))  # noqa: T201 - the answer
    return FIT if healthy(checks) else UNFIT
