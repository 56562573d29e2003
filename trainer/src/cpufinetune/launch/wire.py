"""Messages between coordinator and nodes: one JSON object a line."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

# The port of node 0's coordinator; every pod, and every simulated node, has an address of its own.
COORDINATOR_PORT = 29400
# Events and output of at most LONGEST_LINE of `ranks`, of which JSON may make six times as much.
LONGEST_MESSAGE = 8 << 20
# A machine that is lost sends no goodbye. Seconds: silence before the first probe, between probes, and in all.
IDLE, INTERVAL, UNANSWERED = 10, 5, 30


def watch(writer: asyncio.StreamWriter) -> None:
    """Have the kernel end the connection if the other host is gone without a word."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, (UNANSWERED - IDLE) // INTERVAL)
    # The same for data that is on its way, for which there are no probes.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED * 1000)


def send(writer: asyncio.StreamWriter, kind: str, **fields: Any) -> None:
    """Queue one message."""
    if not writer.is_closing():
        writer.write(json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n")


async def receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the next message, or None once the peer is gone or talks nonsense."""
    try:
        line = await reader.readline()
        message = json.loads(line) if line.endswith(b"\n") else None
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None
