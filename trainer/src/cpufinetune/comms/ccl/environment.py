"""The environment oneCCL and libfabric run in, worked out before they are loaded. All of it is shown by `plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.comms.ccl.locate import CclError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cpufinetune.comms.ccl.locate import OneCcl
    from cpufinetune.cores.layout import Layout

CORES_WORTH_ONE = 8
WORKERS = 1  # threads a rank; more share one connection and do not help over TCP


def communication_cores(*, nodes: int, cores: int) -> int:
    """Return how many of a rank's cores its worker should have to itself.

    Args:
        nodes: of the job; within one, ranks use shared memory and there is no worker's work.
        cores: of the rank; of a few, each computes more than it would gain.
    """
    return WORKERS if nodes > 1 and cores >= CORES_WORTH_ONE else 0


def worker_cpus(layout: Layout) -> tuple[int, ...]:
    """Return the CPU of each local rank's worker: a core kept free for it, or else the rank's last one."""
    return tuple((rank.communication_cpus or rank.cpus)[-1] for rank in layout.ranks)


def variables(
    oneccl: OneCcl | None, *, interface: str, local_rank: int, local_world_size: int, workers: Sequence[int]
) -> dict[str, str]:
    """Return the variables of one rank.

    Args:
        oneccl: where the libraries are; None if the binding brings them.
        interface: the network interface, such as eth0; `lo` within a machine.
        local_rank: the rank's number on its node.
        local_world_size: ranks on the node.
        workers: CPU ids, one for each local rank.
    """
    found = {
        # libfabric over TCP; the other transport is MPI, whose launcher there is none of.
        "CCL_ATL_TRANSPORT": "ofi",
        "FI_PROVIDER": "tcp",
        # Otherwise the first interface that is up is taken, such as a bridge that leads nowhere.
        "FI_TCP_IFACE": interface,
        "CCL_KVS_IFACE": interface,
        # Identity comes from us, not from the variables of an MPI launcher.
        "CCL_PROCESS_LAUNCHER": "none",
        "CCL_LOCAL_RANK": str(local_rank),
        "CCL_LOCAL_SIZE": str(local_world_size),
        "CCL_WORKER_COUNT": str(WORKERS),
        # The default is the last cores of the whole machine, which a pod may not use.
        "CCL_WORKER_AFFINITY": ",".join(map(str, workers)),
        # A worker that looks for messages shares its core with computation, or with other ranks' workers.
        "CCL_YIELD": "sched_yield",
        "CCL_LOG_LEVEL": "error",
    }
    if oneccl is not None and oneccl.fabric is not None:
        found["CCL_OFI_LIBRARY_PATH"] = str(oneccl.fabric)
        found["FI_PROVIDER_PATH"] = str(oneccl.fabric.parent)
    return found


def check(environment: dict[str, str], *, interfaces: Iterable[str], cpuset: Iterable[int]) -> None:
    """Refuse what oneCCL would answer with a hang or with `pthread_create returns 22`.

    Args:
        environment: what oneCCL is about to read.
        interfaces: names of those that exist.
        cpuset: CPU ids this process may use.

    Raises:
        CclError: an interface that does not exist, or a worker's core outside the cpuset.
    """
    known = sorted(interfaces)
    for name in ("FI_TCP_IFACE", "CCL_KVS_IFACE"):
        value = environment.get(name)
        if value is not None and value not in known:
            raise CclError("NoInterface", f"{name} is {value}, which does not exist here", f"use {' or '.join(known)}")
    allowed = set(cpuset)
    affinity = environment.get("CCL_WORKER_AFFINITY", "")
    outside = sorted({cpu for cpu in _cpus(affinity) if cpu not in allowed})
    if outside:
        raise CclError(
            "WorkerOutsideCpuset",
            f"CCL_WORKER_AFFINITY is {affinity}: core {outside[0]} is not one of this machine's or container's",
            "leave the variable to cpufinetune, or name cores of the cpuset",
        )


def _cpus(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.extend(range(int(first), int(last or first) + 1))
    return found
