"""How to reach the API server: KUBECONFIG if it is set, else as a pod of the cluster, else as the user's kubectl."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import aiohttp
import kopf
from kubernetes import config
from kubernetes.client import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable


class NoCluster(Exception):  # noqa: N818 - it names the finding
    """There is nothing that says where the API server is."""


def configuration() -> Configuration:
    """Address and credentials, read anew: tokens change while we run.

    Raises:
        NoCluster: there is neither a kubeconfig nor a service account.
    """
    found = Configuration()
    try:
        if "KUBECONFIG" in os.environ or "KUBERNETES_SERVICE_HOST" not in os.environ:
            config.load_kube_config(client_configuration=found)
        else:
            config.load_incluster_config(client_configuration=found)
    except config.ConfigException as error:
        raise NoCluster(f"cannot tell where the API server is: {error}; set KUBECONFIG or run in a pod") from error
    return found


def session(answered: Callable[[str], None]) -> kopf.AiohttpSession:
    """A session for the watches, which tells the path of every watch that the API server answers."""
    found = configuration()
    scheme, _, token = (found.get_api_key_with_prefix("BearerToken", alias="authorization") or "").partition(" ")
    info = kopf.ConnectionInfo(
        server=found.host,
        ca_path=found.ssl_ca_cert,
        insecure=not found.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=found.cert_file,
        private_key_path=found.key_file,
    )
    trace = aiohttp.TraceConfig()

    async def on_end(_session: object, _context: object, params: Any) -> None:
        if params.url.query.get("watch") == "true" and params.response.ok:
            answered(params.url.path)

    trace.on_request_end.append(on_end)
    # No limit: each watch holds a connection.
    connector = aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context())
    client = aiohttp.ClientSession(connector=connector, headers=info.as_http_headers(), trace_configs=[trace])
    return kopf.AiohttpSession(server=info.server, aiohttp_session=client)
