"""`cpufinetune pod`: the launcher of one pod, for the operator's pods."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.launch import pod
from cpufinetune.launch.places import Places
from cpufinetune.launch.wire import COORDINATOR_PORT

if TYPE_CHECKING:
    import argparse

    from cpufinetune.errors import ExitCode

REPORT_PORT = 8080
FOLDERS = (
    ("--job", "/etc/cpufinetune/job.yaml", "the CpuFineTune document"),
    ("--scratch", "/scratch", "folder for prepared data and what was fetched"),
    ("--output-root", "/output", "volume of model, checkpoints and report"),
    ("--model-root", "/model", "volume of spec.model.claim"),
    ("--data-root", "/data", "volume of spec.dataset.claim"),
    ("--termination-message", "/dev/termination-log", "file for the last word"),
    ("--resolv-conf", "/etc/resolv.conf", "where namespace and cluster domain are read from"),
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options; pods need none of them, tests do."""
    for name, default, text in FOLDERS:
        command.add_argument(name, type=Path, default=Path(default), help=f"{text} (default: {default})")
    command.add_argument("--host-name", default=socket.gethostname(), help="the pod's name (default: this host's)")
    for name, port, text in (
        ("--port", COORDINATOR_PORT, "port of node 0's coordinator"),
        ("--report-port", REPORT_PORT, "port of node 0's report"),
    ):
        command.add_argument(name, type=int, default=port, help=f"{text} (default: {port})")


def main(options: argparse.Namespace) -> ExitCode:
    """Be a pod's launcher."""
    return pod.run(
        Places(
            job=options.job,
            scratch=options.scratch,
            output_root=options.output_root,
            model_root=options.model_root,
            data_root=options.data_root,
            termination_message=options.termination_message,
            resolv_conf=options.resolv_conf,
            host_name=options.host_name,
            port=options.port,
            report_port=options.report_port,
        )
    )
