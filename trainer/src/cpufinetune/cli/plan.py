"""`cpufinetune plan`: what would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.errors import ExitCode

if TYPE_CHECKING:
    import argparse


def main(options: argparse.Namespace) -> ExitCode:
    """Show the plan."""
    del options
    return ExitCode.OK
