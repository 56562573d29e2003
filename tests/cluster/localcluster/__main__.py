"""Command line: `python -m localcluster up|down|status|logs|image-load`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster import images, programs
from localcluster.addresses import direct
from localcluster.cluster import Cluster, attach, down
from localcluster.plan import KEPT, ClusterError, alone, plan, system_node, workers
from localcluster.policy import enforcer
from localcluster.programs import ProgramsError
from localcluster.tools import ToolsError, require_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localcluster.plan import NodePlan

TAIL = 40
INTERRUPTED = 130


def _up(options: argparse.Namespace) -> int:
    """Bring a cluster up and say how to use it; one of the same name is replaced."""
    require_tools()
    target = plan(options.name)
    folder = programs.programs()
    archives = [images.pause_image()]
    nodes = workers(target, options.nodes)
    if options.system_node:
        nodes = (*nodes, system_node(target, len(nodes)))
    with alone(target.name):
        _bring_up(Cluster(target, folder, archives), nodes)
    print(f"export KUBECONFIG={target.kubeconfig}")
    print(f"export PATH={folder}:$PATH")
    if {name.lower() for name, value in os.environ.items() if value} & {"http_proxy", "https_proxy", "all_proxy"}:
        print(f"export NO_PROXY={direct(os.environ)['NO_PROXY']}")
    return 0


def _bring_up(cluster: Cluster, nodes: Sequence[NodePlan]) -> None:
    started = time.monotonic()
    if cluster.plan.folder.exists():
        print(f"replacing the cluster {cluster.plan.name!r}")
    try:
        cluster.up(nodes)
        cluster.supervisor.start(enforcer(cluster.plan, cluster.programs))
    except KeyboardInterrupt:
        print("interrupted: taking it down", file=sys.stderr)
        down(cluster.plan)
        raise
    except ClusterError as error:
        if not cluster.plan.folder.exists():
            raise
        hint = f"what is there is left for you to look at; `down` removes it (cluster {cluster.plan.name!r})"
        raise ClusterError(f"{error}\n{hint}") from error
    (cluster.plan.folder / KEPT).touch()
    print(f"up in {time.monotonic() - started:.1f} s: {', '.join(node.name for node in nodes)}")


def _down(options: argparse.Namespace) -> int:
    """Take a cluster down."""
    target = plan(options.name)
    with alone(target.name):
        if not target.folder.exists():
            print(f"there is no cluster {target.name!r}")
        # Even so: the folder may have been removed by hand.
        down(target)
    return 0


def _status(options: argparse.Namespace) -> int:
    """Show processes and nodes."""
    target = plan(options.name)
    cluster = attach(target, programs.programs())
    for name in reversed(cluster.supervisor.names()):
        pid = cluster.supervisor.pid(name)
        print(f"{name:28} {'ended' if pid is None else f'pid {pid}'}")
    print(cluster.kubectl("get", "nodes", "--output=wide"), end="")
    return 0


def _logs(options: argparse.Namespace) -> int:
    """Show the end of a component's log, or the list of components."""
    target = plan(options.name)
    if not target.logs.exists():
        raise ClusterError(f"there is no cluster {target.name!r}")
    if not options.component:
        print("\n".join(sorted(file.stem for file in target.logs.glob("*.log"))))
        return 0
    file = target.logs / f"{options.component}.log"
    if not file.exists():
        raise ClusterError(f"there is no {file}; without a component, logs lists them")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join(lines[-options.lines :]))
    return 0


def _image_load(options: argparse.Namespace) -> int:
    """Import built images into every node."""
    target = plan(options.name)
    cluster = attach(target, programs.programs())
    for name in options.images:
        archive = Path(name) if Path(name).is_file() else images.archive(name)
        cluster.load(archive)
    return 0


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="localcluster", description="A real Kubernetes cluster on this machine.")
    parser.add_argument("--name", default=os.environ.get("CLUSTER", "dev"), help="name of the cluster (default: dev)")
    commands = parser.add_subparsers(required=True)
    for command, function in {"up": _up, "down": _down, "status": _status, "logs": _logs}.items():
        added = commands.add_parser(command, help=function.__doc__)
        added.set_defaults(run=function)
        if command == "up":
            added.add_argument("--nodes", type=int, default=2, help="worker nodes (default: 2)")
            added.add_argument("--system-node", action="store_true", help="add a node for operators and the like")
        if command == "logs":
            added.add_argument("component", nargs="?", help="such as kube-apiserver or node-a.kubelet")
            added.add_argument("--lines", type=int, default=TAIL, help="lines from the end (default: %(default)s)")
    load = commands.add_parser("image-load", help=_image_load.__doc__)
    load.add_argument("images", nargs="+", help="names of images that buildah has, or OCI archives")
    load.set_defaults(run=_image_load)
    options = parser.parse_args()
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ClusterError, ToolsError, ProgramsError, images.ImageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
