"""The API server by HTTP: one connection and no process a request, so that hundreds of documents take seconds."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import pytest
import yaml

from cpufinetune.job.load import override
from cpufinetune.job.yaml_text import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localcluster.cluster import Cluster

Document = dict[str, Any]
Build = Callable[..., Document]

CRD = Path(__file__).parents[2] / "manifests" / "crd" / "cpufinetunes.yaml"
GROUP = "/apis/cpufinetune.dev/v1alpha1"
HTTP_ERRORS = 400
SMALLEST = """
apiVersion: cpufinetune.dev/v1alpha1
kind: CpuFineTune
metadata: {name: mrpc}
spec:
  model: {name: distilbert-base-uncased, revision: "12040accade4e8a0f71eabdb258fecc2e7e948be"}
  dataset: {name: nyu-mll/glue, config: mrpc, revision: "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"}
  task: {text: [sentence1, sentence2], label: label}
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answers."""

    status: int
    body: Document

    @property
    def refused(self) -> bool:
        return self.status >= HTTP_ERRORS

    @property
    def object(self) -> Document:
        """The object that was made or found."""
        assert not self.refused, self.message
        return self.body

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def fields(self) -> set[str]:
        """Fields that the refusal is about; none if the document could not be decoded at all."""
        causes = (self.body.get("details") or {}).get("causes", ())
        return {cause["field"] for cause in causes if "field" in cause}


class Api:
    """Requests to an API server, unknown fields refused as kubectl wants it; `jobs` are those of one namespace."""

    namespace = "api"
    jobs = f"{GROUP}/namespaces/{namespace}/cpufinetunes"

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._connection = http.client.HTTPSConnection(urlsplit(cluster["server"]).netloc, context=context, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: object = None, kind: str = "json", **query: str) -> Answer:
        """Send `body` as application/`kind`."""
        data = None if body is None else json.dumps(body)
        target = f"{path}?{urlencode({'fieldValidation': 'Strict', **query})}"
        self._connection.request(method, target, data, {"Content-Type": f"application/{kind}"})
        with self._connection.getresponse() as response:
            text = response.read().decode()
            # A path that is not served yet is answered in plain text.
            return Answer(response.status, json.loads(text) if text.startswith("{") else {"message": text})

    def create(self, document: Document) -> Answer:
        return self.request("POST", self.jobs, document)

    def try_out(self, document: Document, path: str = jobs) -> Answer:
        """Let the API server check and fill in a new object without keeping it."""
        return self.request("POST", path, document, dryRun="All")

    def get(self, name: str) -> Document:
        return self.request("GET", f"{self.jobs}/{name}").object

    def merge(self, name: str, patch: Document, **query: str) -> Answer:
        return self.request("PATCH", f"{self.jobs}/{name}", patch, "merge-patch+json", **query)

    def see(self, name: str, **status: object) -> Document:
        """Write fields of a status."""
        patch = {"status": status}
        return self.request("PATCH", f"{self.jobs}/{name}/status", patch, "merge-patch+json").object

    def apply(self, document: Document, manager: str, subresource: str = "", **query: str) -> Answer:
        """Apply on the server's side."""
        path = f"{self.jobs}/{document['metadata']['name']}{subresource}"
        return self.request("PATCH", path, document, "apply-patch+yaml", fieldManager=manager, **query)


@pytest.fixture(scope="session")
def api(apiserver: Cluster) -> Iterator[Api]:
    """Return an API server that serves the resource, with a namespace of the tests' own."""
    kubectl = apiserver.kubectl
    kubectl("apply", "--server-side", "-f", str(CRD))
    kubectl("create", "namespace", Api.namespace)
    with contextlib.closing(Api(kubectl.kubeconfig)) as client:
        kubectl.wait("the resource", lambda: not client.request("GET", Api.jobs).refused, 20)
        kubectl.wait("its schema", lambda: GROUP[1:] in client.request("GET", "/openapi/v3").body.get("paths", ()), 20)
        yield client


@pytest.fixture(scope="module", autouse=True)
def _tidy(api: Api) -> Iterator[None]:
    """Leave no object behind: other tests share the API server."""
    yield
    assert not api.request("DELETE", api.jobs).refused


@pytest.fixture(scope="session")
def document() -> Build:
    """Return a builder: a small valid document with `field.path=value` changes made to it."""

    def build(*changes: str) -> Document:
        made: Document = read_yaml(SMALLEST, "test")
        for change in changes:
            assert override(made, change) is None, change
        return made

    return build


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    """Return a maker of names that no object has."""
    numbers = itertools.count(1)
    return lambda: f"job-{next(numbers)}"


@pytest.fixture(scope="session")
def live(api: Api, document: Build, new_name: Callable[[], str]) -> Build:
    """Return a builder of documents that are also made, each under a name of its own."""
    return lambda *changes: api.create(document(f"metadata.name={new_name()}", *changes)).object
