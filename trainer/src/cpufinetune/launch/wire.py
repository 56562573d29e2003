"""Messages between coordinator and nodes: one JSON object a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

# The port of node 0's coordinator; every pod, and every simulated node, has an address of its own.
COORDINATOR_PORT = 29400
# Events and output of at most LONGEST_LINE of `ranks`, of which JSON may make six times as much.
LONGEST_MESSAGE = 8 << 20


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
