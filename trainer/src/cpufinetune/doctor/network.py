"""Reads the network interfaces, and finds the one that other nodes would be reached by."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from cpufinetune.cores.cgroup import read_text
from cpufinetune.doctor.facts import Interface, Network
from cpufinetune.world.interface import addresses, interface_of

if TYPE_CHECKING:
    from cpufinetune.world.interface import Address

# Reserved for documentation, so nobody has them, and the way there is the way out. Source: RFC 5737, RFC 3849.
OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
DISCARD_PORT = 9
LOOPBACK = "lo"


def read(root: Path = Path("/")) -> Network:
    """Read the interfaces that have addresses."""
    found: dict[str, list[Address]] = {}
    try:
        for name, address in addresses():
            found.setdefault(name, []).append(address)
        chosen = _chosen()
    except OSError as error:
        return Network(refusal=error.strerror or str(error))
    interfaces = tuple(
        Interface(name, tuple(owned), *link(root / "sys/class/net" / name)) for name, owned in found.items()
    )
    return Network(interfaces, chosen or first_outward(interfaces))


def link(folder: Path) -> tuple[int | None, int | None]:
    """Return MTU and speed in Mbit/s; virtual interfaces answer -1 or an error for their speed."""
    mtu, speed = (read_text(folder / name) or "" for name in ("mtu", "speed"))
    return int(mtu) if mtu.isdecimal() else None, int(speed) if speed.isdecimal() and int(speed) else None


def first_outward(interfaces: tuple[Interface, ...]) -> str | None:
    """Return the first interface but the loopback: a network without a default route is one, too."""
    return next((interface.name for interface in interfaces if interface.name != LOOPBACK), None)


def _chosen() -> str | None:
    """Name the interface of the address that packets to the outside would bear; none is sent."""
    for family, target in OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, DISCARD_PORT))
                name = interface_of(probe.getsockname()[0])
        except OSError:
            continue
        if name not in {None, LOOPBACK}:
            return name
    return None
