"""Where the other nodes are. Only the resolver differs between a cluster and simulated nodes on one machine."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cpufinetune.errors import AttemptError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Seconds between tries to resolve peers: quick at first, since DNS usually lags by a moment only.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
# Seconds to wait for peers: pods of a larger world are scheduled, pulled and started over a longer time.
BUDGET_BASE = 300.0
BUDGET_A_NODE = 10.0


class Resolver(Protocol):
    """Turns a host name into an address."""

    def resolve(self, host: str) -> str:
        """Return an address of `host`; OSError if there is none (yet)."""


@dataclass(frozen=True, slots=True)
class DnsResolver:
    """The resolver of a pod."""

    def resolve(self, host: str) -> str:
        """Ask the system; of a host with both kinds of address all nodes must take the same, the IPv4 one."""
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return str(min(found, key=lambda info: info[0] != socket.AF_INET)[4][0])


@dataclass(frozen=True, slots=True)
class LoopbackResolver:
    """The resolver of simulated nodes: node i is loopback address `first` + i."""

    hosts: tuple[str, ...]
    first: str

    def resolve(self, host: str) -> str:
        """Look the host up in the list of all."""
        try:
            position = self.hosts.index(host)
        except ValueError as error:
            raise OSError(f"unknown host {host}") from error
        return str(ipaddress.IPv4Address(self.first) + position)


def host_names(pattern: str, set_name: str, nodes: int) -> tuple[str, ...]:
    """Return the hosts of all nodes; `pattern` holds `{set}` and `{node}`."""
    return tuple(pattern.format(set=set_name, node=node) for node in range(nodes))


def budget(nodes: int) -> float:
    """Return seconds to wait for `nodes` nodes."""
    return BUDGET_BASE + BUDGET_A_NODE * nodes


async def wait_for_names(
    hosts: Sequence[str], resolver: Resolver, seconds: float, say: Callable[[str], None]
) -> tuple[str, ...]:
    """Wait until every host, this one's own included, resolves; return their addresses.

    Raises:
        AttemptError: the time is up; names the hosts that are missing.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause = FIRST_PAUSE
    while True:
        found = [await asyncio.to_thread(_try, resolver, host) for host in hosts]
        missing = [host for host, address in zip(hosts, found, strict=True) if address is None]
        if not missing:
            return tuple(address for address in found if address is not None)
        if loop.time() >= deadline:
            raise AttemptError(
                "PeersMissing",
                f"no address for {', '.join(missing[:5])} after {seconds:.0f} s",
                "check that all pods are scheduled and that the headless Service exists",
            )
        say(f"waiting for {len(missing)} of {len(hosts)} hosts, for example {missing[0]}")
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def own_address(
    host: str,
    resolver: Resolver,
    owner: Callable[[str], str | None],
    seconds: float,
    say: Callable[[str], None],
) -> tuple[str, str]:
    """Wait until this node's own name leads back to it; return its address and the interface that has it.

    Args:
        host: this node's name.
        resolver: what the others ask, too.
        owner: names the interface of an address, None if it is another host's: DNS may still know a pod gone by.
        seconds: how long to wait.
        say: gets a line at each try that fails.

    Raises:
        AttemptError: the time is up.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause = FIRST_PAUSE
    while True:
        address = await asyncio.to_thread(_try, resolver, host)
        interface = None if address is None else owner(address)
        if address is not None and interface is not None:
            return address, interface
        what = "no address" if address is None else f"the address {address} of another host"
        if loop.time() >= deadline:
            raise AttemptError(
                "OwnNameUnknown", f"{host} has {what} after {seconds:.0f} s", "check the headless Service and DNS"
            )
        say(f"waiting for the own name: {host} has {what}")
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _try(resolver: Resolver, host: str) -> str | None:
    try:
        return resolver.resolve(host)
    except OSError:
        return None
