"""Settings of the kernel that kubelets change for the whole machine, and give back to nobody; and its processors."""

from __future__ import annotations

import json
from pathlib import Path

from localcluster import plan

SETTINGS = Path("/proc/sys")
ONLINE = Path("/sys/devices/system/cpu/online")
# What a kubelet wants there.
KUBELET = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def remember() -> None:
    """Keep the settings as they are before the machine's first kubelet starts."""
    with plan.locked("kernel"):
        file = plan.HOME / "kernel.json"
        if not file.exists():
            plan.write(file, json.dumps({name: _read(name) for name in KUBELET if (SETTINGS / name).exists()}))


def restore() -> None:
    """Set them back once there is no node left, except what somebody else has changed since."""
    with plan.locked("kernel"):
        file = plan.HOME / "kernel.json"
        if not file.exists() or any(plan.HOME.glob("*/*/kubelet.yaml")):
            return
        for name, value in json.loads(file.read_text(encoding="utf-8")).items():
            if _read(name) == KUBELET[name] != value:
                (SETTINGS / name).write_text(value, encoding="utf-8")
        file.unlink()


def processors() -> set[int]:
    """Numbers of the processors that are there, with gaps where some are switched off."""
    found: set[int] = set()
    for part in ONLINE.read_text(encoding="utf-8").strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _read(name: str) -> str:
    return (SETTINGS / name).read_text(encoding="utf-8").strip()
