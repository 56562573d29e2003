"""Requests to the API server through the official client, in a bounded number of threads, for `kube` alone."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from cpufinetune_operator.model import NotYet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubernetes.client import Configuration

CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_OK = range(200, 300)
_UNAUTHORIZED, _CONFLICT, _TOO_MANY, _SERVER_ERROR = 401, 409, 429, 500
_LONGEST_WAIT = 300.0
_LOGGER = logging.getLogger(__name__)


class Refused(Exception):  # noqa: N818 - it names the answer
    """The API server understood the request and will not do it; asking again is of no use.

    Attributes:
        code: HTTP status: 403, 404, 409, 422 and so on.
        reason: the API server's word for it, such as `Conflict` or `AlreadyExists`.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message


class Transport:
    """Sends requests, `threads` at most at the same time."""

    def __init__(self, configuration: Configuration, threads: int) -> None:
        configuration.connection_pool_maxsize = threads
        # Every retry is the queue's: one here would hold a thread, and one with Retry-After for as long as it says.
        configuration.retries = urllib3.Retry(0, redirect=False)
        self._client = ApiClient(configuration)
        self._client.user_agent = "cpufinetune-operator"
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kube")

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> dict[str, Any]:
        """Send a request and return what it answers.

        Raises:
            Refused: the answer is no.
            NotYet: there was no answer, or the API server is too busy to give one.
        """
        headers = {"Accept": accept} | ({"Content-Type": content} if body is not None else {})
        call = functools.partial(self._send, method, path, dict(query or {}), headers, body)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """Forget what waits for a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = self._client.call_api(*request, _request_timeout=(CONNECT_SECONDS, READ_SECONDS))
            data = answer.read()
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise NotYet("ApiUnreachable", f"the API server does not answer: {_brief(error)}") from error
        if answer.status in _OK:
            found: dict[str, Any] = json.loads(data)
            return found
        raise _failure(answer.status, answer.getheader("Retry-After"), data)


def _failure(code: int, retry_after: str | None, data: bytes) -> Refused | NotYet:
    reason, message = _status_of(data)
    message = message or f"the API server answers {code}"
    if code in {_UNAUTHORIZED, _TOO_MANY} or code >= _SERVER_ERROR:
        seconds = float(retry_after) if retry_after and retry_after.isdecimal() else None
        after = None if seconds is None else min(seconds, _LONGEST_WAIT)
        return NotYet("ApiBusy" if code == _TOO_MANY else "ApiUnavailable", message, after)
    return Refused(code, reason, message)


def _status_of(data: bytes) -> tuple[str, str]:
    """Reason and message of a `Status` object; whatever stands in between may answer something else."""
    try:
        status = json.loads(data)
        return str(status.get("reason", "")), str(status.get("message", ""))
    except (ValueError, AttributeError):
        return "", ""


def _brief(error: Exception) -> str:
    cause = getattr(error, "reason", None)
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, Exception) else f"{type(error).__name__}: {error}"
