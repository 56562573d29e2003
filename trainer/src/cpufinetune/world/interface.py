"""Which network interface owns an address: asked of the kernel over netlink, for IPv4 and IPv6 alike."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Address = ipaddress.IPv4Interface | ipaddress.IPv6Interface

# Source: linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h.
RTM_NEWADDR, RTM_GETADDR = 20, 22
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
IFA_ADDRESS, IFA_LOCAL = 1, 2
HEADER = struct.Struct("=LHHLL")  # length, type, flags, sequence, port
MESSAGE = struct.Struct("=BBBBL")  # family, prefix length, flags, scope, index
ATTRIBUTE = struct.Struct("=HH")  # length, type
LARGEST_ANSWER = 1 << 16


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has `address`, None if it is none of this host's."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    for name, owned in addresses():
        # All of 127.0.0.0/8 is this host, of which the interface lists but one.
        if wanted == owned.ip or (wanted.is_loopback and wanted in owned.network):
            return name
    return None


def addresses() -> Iterator[tuple[str, Address]]:
    """List all addresses of this host, each with the name of its interface."""
    for data in _dump():
        family, prefix, _, _, index = MESSAGE.unpack_from(data)
        found = dict(_attributes(data[MESSAGE.size :]))
        # On a point-to-point link ADDRESS is the other end.
        raw = found.get(IFA_LOCAL, found.get(IFA_ADDRESS))
        if raw is not None and family in {socket.AF_INET, socket.AF_INET6}:
            yield socket.if_indextoname(index), ipaddress.ip_interface((raw, prefix))


def _dump() -> Iterator[bytes]:
    """Ask for all addresses; yield the body of each message."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, 0))
        body = MESSAGE.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        kernel.send(HEADER.pack(HEADER.size + len(body), RTM_GETADDR, NLM_F_REQUEST_DUMP, 1, 0) + body)
        while True:
            answer = kernel.recv(LARGEST_ANSWER)
            while answer:
                length, kind, *_ = HEADER.unpack_from(answer)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    number = -struct.unpack_from("=i", answer, HEADER.size)[0]
                    raise OSError(number, os.strerror(number))
                if kind == RTM_NEWADDR:
                    yield answer[HEADER.size : length]
                answer = answer[_aligned(length) :]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        yield kind, data[ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
