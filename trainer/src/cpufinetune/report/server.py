"""The report over HTTP, for the operator and for Prometheus. It answers GET and nothing else, and never waits long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

# What a page is, and what makes it.
Page = tuple[str, Callable[[], str]]

LARGEST_REQUEST = 8 << 10
MOST_CONNECTIONS = 32
PATIENCE = 5.0  # seconds for a request to arrive, and for its answer to leave
FRESH = 1.0  # seconds for which a page is not made anew
TEXT = "text/plain; charset=utf-8"
BACKLOG = 64


@dataclass(slots=True)
class ReportServer:
    """Serves `pages` by path. Whatever a client does, or a page fails with, ends with its connection."""

    pages: Mapping[str, Page]
    clock: Callable[[], float] = time.monotonic
    _open: int = 0
    _made: dict[str, tuple[float, str]] = field(default_factory=dict)

    async def run(self, listener: socket.socket) -> None:
        """Serve until cancelled."""
        server = await asyncio.start_server(self._serve, sock=listener, limit=LARGEST_REQUEST)
        async with server:
            await server.serve_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MOST_CONNECTIONS:
                async with asyncio.timeout(PATIENCE):
                    answer = await self._answer(reader)
                    if answer is not None:
                        writer.write(answer)
                        await writer.drain()
        except (OSError, TimeoutError):
            pass
        finally:
            self._open -= 1
            # What a slow reader has not taken by now is dropped; else it goes out first.
            with contextlib.suppress(OSError, TimeoutError):
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), PATIENCE)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except asyncio.IncompleteReadError:
            return None
        return self.answer(head.partition(b"\r\n")[0].decode("ascii", "replace"))

    def answer(self, request: str) -> bytes:
        """Return the response to a request line, such as `GET /report HTTP/1.1`."""
        method, _, rest = request.partition(" ")
        target, _, protocol = rest.partition(" ")
        path = target.partition("?")[0]
        if not protocol.startswith("HTTP/1."):
            return response(HTTPStatus.BAD_REQUEST)
        if method != "GET":
            return response(HTTPStatus.METHOD_NOT_ALLOWED, extra={"Allow": "GET"})
        if path not in self.pages:
            return response(HTTPStatus.NOT_FOUND)
        try:
            return response(HTTPStatus.OK, self._page(path), self.pages[path][0])
        except Exception as error:  # noqa: BLE001 - a page must not end the run
            return response(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}\n")

    def _page(self, path: str) -> str:
        now = self.clock()
        made, text = self._made.get(path, (-FRESH, ""))
        # However often it is asked for, training has the CPU.
        if now - made >= FRESH:
            text = self.pages[path][1]()
            self._made[path] = now, text
        return text


def response(
    status: HTTPStatus, body: str | None = None, kind: str = TEXT, *, extra: Mapping[str, str] | None = None
) -> bytes:
    """Return a whole HTTP/1.1 response, after which the connection ends."""
    content = (f"{status.phrase}\n" if body is None else body).encode("utf-8", "replace")
    headers = {
        "Content-Type": kind,
        "Content-Length": str(len(content)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
        **(extra or {}),
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + content


def listen(port: int) -> socket.socket:
    """Listen at all addresses of this host, IPv4 and IPv6 where there are both.

    Raises:
        OSError: the port is taken.
    """
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    except (OSError, ValueError):
        # A host without IPv6.
        return socket.create_server(("", port), backlog=BACKLOG)
