"""Whether the variables of oneCCL that are set fit this machine or container; needs no PyTorch."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

from cpufinetune.comms.ccl import environment

if TYPE_CHECKING:
    from collections.abc import Mapping


def check(environ: Mapping[str, str] | None = None) -> None:
    """Refuse variables of oneCCL with which it would hang here.

    Args:
        environ: that of this process by default.

    Raises:
        CclError: an interface that does not exist, or a worker's core that this process may not use.
    """
    told = dict(os.environ if environ is None else environ)
    environment.check(told, interfaces=(name for _, name in socket.if_nameindex()), cpuset=_cpuset())


def _cpuset() -> set[int]:
    """Return the CPUs of the container: a rank is pinned to some of them already, its worker may use others."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
        return os.sched_getaffinity(0)
    except OSError:  # forbidden, or numbers of a machine that is only shown in part
        return before
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)
