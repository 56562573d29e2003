from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from cpufinetune.errors import AttemptError
from cpufinetune.launch.link import Link

ELSEWHERE = "127.0.0.9"


async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


def test_node_0_is_looked_for_again_at_each_try() -> None:
    asked: list[str] = []
    lines: list[str] = []

    async def connect() -> tuple[object, int]:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def locate() -> str:
            # A pod that is gone, a name that is not there for a while, and the pod that took its place.
            asked.append("")
            if len(asked) == 3:
                raise OSError("unknown host")
            return ELSEWHERE if len(asked) < 3 else "127.0.0.1"

        async with server:
            _, writer = await Link(locate, 60.0, lines.append, port).connect()
            connection = writer.get_extra_info("socket")
            found = connection.getpeername()[0], connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            return found

    assert asyncio.run(connect()) == ("127.0.0.1", 1)
    assert len(asked) == 4
    assert [line.partition(":")[0] for line in lines] == ["waiting for node 0"] * 2
    assert lines[1].endswith("unknown host")


def test_a_node_0_that_does_not_answer_is_given_up() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen

        async def locate() -> str:
            return "127.0.0.1"

        with pytest.raises(AttemptError, match="node 0 does not answer at port") as caught:
            asyncio.run(Link(locate, 0.0, pytest.fail, taken.getsockname()[1]).connect())
    assert caught.value.reason == "CoordinatorMissing"


def test_a_locator_that_gives_up_ends_it() -> None:
    async def locate() -> str:
        raise AttemptError("PeersMissing", "no address")

    with pytest.raises(AttemptError, match="no address"):
        asyncio.run(Link(locate, 60.0, pytest.fail).connect())
