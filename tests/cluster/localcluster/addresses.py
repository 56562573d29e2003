"""The part of the private addresses that clusters take theirs from, and its place on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# The second byte of a cluster's addresses.
FIRST_NET, NETS = 64, 64
ALL = f"127.0.0.0/8,10.{FIRST_NET}.0.0/10"
HALF = 0xFFFF0000


def routed(table: str) -> set[int]:
    """Those N for which a route of the kernel's table overlaps with 10.N.0.0/16; the default route does not count."""
    found: set[int] = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        target, mask = (int.from_bytes(bytes.fromhex(fields[place]), sys.byteorder) for place in (1, 7))
        common = mask & HALF
        nets = range(FIRST_NET, FIRST_NET + NETS)
        found.update(net for net in nets if mask and (10 << 24 | net << 16) & common == target & common)
    return found


def direct(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, with clusters exempt from its proxies: none of them leads there."""
    exempt = environment.get("NO_PROXY") or environment.get("no_proxy")
    value = ",".join(filter(None, (exempt, ALL)))
    return {**environment, "NO_PROXY": value, "no_proxy": value}
