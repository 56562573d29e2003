from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.launch import wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Received = list[dict[str, Any] | None]
LIMIT = 1 << 12


def exchange(act: Callable[[asyncio.StreamWriter], Awaitable[object]], messages: int) -> Received:
    """Let `act` write to one end of a socket pair and close it; return what the other end receives."""

    async def both() -> Received:
        near, far = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=near, limit=LIMIT)
        reader, back = await asyncio.open_connection(sock=far, limit=LIMIT)
        try:
            await act(writer)
            writer.close()
            return [await wire.receive(reader) for _ in range(messages)]
        finally:
            for end in (writer, back):
                end.close()
                await end.wait_closed()

    return asyncio.run(both())


def raw(data: bytes) -> Callable[[asyncio.StreamWriter], Awaitable[object]]:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return act


def test_messages_arrive_in_order_and_then_the_end() -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        wire.send(writer, "hello", node=1, notes=["é", "two\nlines"])
        wire.send(writer, "ready")
        await writer.drain()

    assert exchange(act, 4) == [
        {"kind": "hello", "node": 1, "notes": ["é", "two\nlines"]}, {"kind": "ready"}, None, None,
    ]  # fmt: skip


def test_a_message_that_comes_in_pieces_is_put_together() -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        for piece in (b'{"ki', b'nd":"re', b'ady"}', b"\n"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    assert exchange(act, 2) == [{"kind": "ready"}, None]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"kind":"ready"}', id="a message cut off before its end"),
        pytest.param(b'{"kind":\n', id="half a message"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(b"\xff\xfe\n", id="no UTF-8"),
        pytest.param(b"\n", id="an empty line"),
        pytest.param(b'"ready"\n', id="a JSON string"),
        pytest.param(b"[1]\n", id="a JSON list"),
        pytest.param(b"[]\n", id="an empty JSON list"),
        pytest.param(b"5\n", id="a JSON number"),
        pytest.param(b"null\n", id="JSON null"),
        pytest.param(b"{" + b" " * 2 * LIMIT + b"}\n", id="a message too long"),
    ],
)
def test_a_peer_that_is_gone_or_talks_nonsense_ends_the_talk(data: bytes) -> None:
    assert exchange(raw(data), 1) == [None]


def test_a_reset_connection_ends_the_talk() -> None:
    async def both() -> dict[str, Any] | None:
        server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            wire.send(writer, "hello")
            try:
                return await wire.receive(reader)
            finally:
                writer.close()

    assert asyncio.run(both()) is None


def test_nothing_is_sent_once_closing() -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.close()
        wire.send(writer, "late")
        await writer.wait_closed()

    assert exchange(act, 1) == [None]
