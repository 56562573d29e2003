"""The report server against real clients, well-behaved and not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.report import server as module
from cpufinetune.report.server import MOST_CONNECTIONS, ReportServer, listen, response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Address = tuple[str, int]
PAGES: dict[str, Any] = {
    "/report": ("application/json", lambda: '{"step": 1}'),
    "/healthz": ("text/plain", lambda: "ok\n"),
    "/broken": ("text/plain", lambda: 1 / 0),
}


def served(act: Callable[[Address], Awaitable[Any]], pages: dict[str, Any] | None = None, **options: Any) -> Any:
    """Run `act` while a server is up."""

    async def both() -> Any:
        listener = listen(0)
        serving = asyncio.create_task(ReportServer(PAGES if pages is None else pages, **options).run(listener))
        try:
            return await act(("127.0.0.1", listener.getsockname()[1]))
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    return asyncio.run(both())


async def talk(address: Address, request: bytes, *, finished: bool = False) -> bytes:
    """Send bytes; return all that comes back until the server hangs up."""

    def exchange() -> bytes:
        with socket.create_connection(address, timeout=10) as client:
            client.sendall(request)
            if finished:
                client.shutdown(socket.SHUT_WR)
            received = b""
            # A request that is not even read ends in a reset.
            with contextlib.suppress(ConnectionResetError):
                while part := client.recv(1 << 16):
                    received += part
            return received

    return await asyncio.to_thread(exchange)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        pytest.param(get("/report"), "200 OK", '{"step": 1}', id="a page"),
        pytest.param(get("/healthz?x=1"), "200 OK", "ok\n", id="a query is ignored"),
        pytest.param(get("/"), "404 Not Found", "Not Found\n", id="no such page"),
        pytest.param(get("/report/../etc/passwd"), "404 Not Found", "Not Found\n", id="no files"),
        pytest.param(b"POST /report HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "Method Not Allowed\n", id="POST"),
        pytest.param(b"HELO there\r\n\r\n", "400 Bad Request", "Bad Request\n", id="another protocol"),
        pytest.param(b"\xff\xfe\r\n\r\n", "400 Bad Request", "Bad Request\n", id="no ASCII"),
        pytest.param(
            get("/broken"), "500 Internal Server Error", "ZeroDivisionError: division by zero\n", id="a page that fails"
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", "431 Request Header Fields Too Large",
            "Request Header Fields Too Large\n", id="a request that is too large",
        ),
    ],
)  # fmt: skip
def test_requests_are_answered_and_the_connection_ends(request_: bytes, status: str, body: str) -> None:
    answer = served(lambda address: talk(address, request_)).decode()
    head, _, content = answer.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}\r\n")
    assert "Connection: close" in head
    assert f"Content-Length: {len(body)}" in head
    assert content == body


def test_half_a_request_gets_no_answer() -> None:
    assert served(lambda address: talk(address, b"GET /rep", finished=True)) == b""


def test_a_client_that_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    assert served(lambda address: talk(address, b"GET /report")) == b""


def test_a_client_that_does_not_read_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    large = {"/large": ("text/plain", lambda: "x" * (64 << 20))}

    def deaf(address: Address) -> int:
        with socket.create_connection(address, timeout=10) as client:
            client.sendall(get("/large"))
            time.sleep(3)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while part := client.recv(1 << 20):
                    received += len(part)
            return received

    assert served(lambda address: asyncio.to_thread(deaf, address), large) < 64 << 20


def test_too_many_clients_are_turned_away_and_others_served_later() -> None:
    async def crowd(address: Address) -> tuple[bytes, bytes]:
        with contextlib.ExitStack() as stack:
            for _ in range(MOST_CONNECTIONS):
                stack.enter_context(socket.create_connection(address))
            turned_away = await talk(address, get("/healthz"))
        later = b""
        for _ in range(100):
            later = later or await talk(address, get("/healthz"))
        return turned_away, later

    turned_away, later = served(crowd)
    assert turned_away == b""
    assert later.endswith(b"ok\n")


def test_a_page_is_made_at_most_once_a_second() -> None:
    now, made = [0.0], []

    def page() -> str:
        made.append(now[0])
        return str(len(made))

    async def ask(address: Address) -> list[bytes]:
        answers = []
        for now[0] in (0.0, 0.9, 1.0, 1.5):
            answers.append((await talk(address, get("/page")))[-1:])
        return answers

    pages = {"/page": ("text/plain", page)}
    assert served(ask, pages, clock=lambda: now[0]) == [b"1", b"1", b"2", b"2"]


def test_it_listens_to_ipv6_as_well_where_there_is_any() -> None:
    with listen(0) as listener:
        port = listener.getsockname()[1]
        families = [socket.AF_INET] + ([socket.AF_INET6] if listener.family == socket.AF_INET6 else [])
        for family in families:
            with socket.socket(family) as client:
                client.connect(("127.0.0.1" if family == socket.AF_INET else "::1", port))


def test_a_port_that_is_taken_is_an_error() -> None:
    with listen(0) as listener, pytest.raises(OSError, match="in use"):
        listen(listener.getsockname()[1])


def test_text_that_is_no_text_does_not_break_the_response() -> None:
    assert response(HTTPStatus.OK, "a\udcffb").endswith(b"a?b")
