"""A proxy before the API server that refuses requests on demand: `python -m localcluster.faults CLUSTER`.

The API server's own priority and fairness cannot do it: it always lets one request through. Callers authenticate with
a token, which is passed on; certificates end at the proxy.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from localcluster.components import API_PORT, listens
from localcluster.plan import plan
from localcluster.process import Component

if TYPE_CHECKING:
    from localcluster.plan import Plan

PORT = 6444
CHUNK = 1 << 16
HOP_HEADERS = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"}


@dataclass(frozen=True, slots=True)
class Faults:
    """What the proxy of a cluster does; `server` is the URL to use in the place of the API server's."""

    cluster: Plan

    @property
    def file(self) -> Path:
        """Where the proxy reads, at each request, how to answer."""
        return self.cluster.folder / "faults.json"

    @property
    def address(self) -> str:
        """Where the API server, and so the proxy, listens."""
        return (self.cluster.folder / "server").read_text(encoding="utf-8")

    @property
    def server(self) -> str:
        """URL of the proxy."""
        return f"https://{self.address}:{PORT}"

    def refuse(self, status: int = 429, retry_after: int = 1) -> None:
        """Answer every request with `status` from now on."""
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps({"status": status, "retryAfter": retry_after}), encoding="utf-8")
        temporary.rename(self.file)

    def serve(self) -> None:
        """Pass requests on again."""
        self.file.unlink(missing_ok=True)

    def component(self) -> Component:
        """Describe the proxy's process."""
        argv = (sys.executable, "-m", "localcluster.faults", self.cluster.name)
        environment = {"PYTHONPATH": str(Path(__file__).parents[1])}
        return Component("fault-proxy", argv, lambda: listens(self.address, PORT), environment=environment)


@dataclass(slots=True)
class Proxy:
    """The proxy's process."""

    faults: Faults
    session: aiohttp.ClientSession

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Refuse a request, or pass it on and its answer back, as it comes."""
        if self.faults.file.exists():
            fault = json.loads(self.faults.file.read_text(encoding="utf-8"))
            return refusal(fault["status"], fault["retryAfter"])
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_HEADERS}
        target = f"https://{self.faults.address}:{API_PORT}{request.raw_path}"
        body = await request.read()
        async with self.session.request(request.method, target, headers=headers, data=body) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                if self.faults.file.exists():
                    # Watches that run already end, as they do when a server is overloaded.
                    break
                await response.write(chunk)
            return response


def refusal(status: int, retry_after: int) -> web.Response:
    """Return the answer of a server that is too busy."""
    content = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "refused by the fault proxy",
        "reason": "TooManyRequests",
        "code": status,
    }
    return web.json_response(content, status=status, headers={"Retry-After": str(retry_after)})


async def main(name: str) -> None:
    """Serve until killed."""
    cluster = plan(name)
    faults, pki = Faults(cluster), cluster.certificates
    trust = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, connect=10)
    # Bodies are passed on as they are, packed or not.
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", Proxy(faults, session).handle)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, faults.address, PORT, ssl_context=serving).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
