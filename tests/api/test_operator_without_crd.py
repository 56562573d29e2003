"""A cluster that does not know our kind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from operators import Operator, rights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localcluster.cluster import Cluster
    from tests.api.conftest import Api

USER = "operator-without-crd"
CRD = Path(__file__).parents[2] / "manifests" / "crd" / "cpufinetunes.yaml"
KIND = "crd/cpufinetunes.cpufinetune.dev"
GROUP = "apis/cpufinetune.dev/v1alpha1"


@pytest.fixture
def without_crd(apiserver: Cluster, api: Api) -> Iterator[Cluster]:
    """Return the API server without the CRD, which comes back afterwards."""
    kubectl = apiserver.kubectl
    kubectl("delete", KIND)
    kubectl.wait("the resource is gone", lambda: api.request("GET", f"/{GROUP}").refused)
    yield apiserver
    kubectl("apply", "--server-side", "-f", str(CRD))
    kubectl.wait("the resource is back", lambda: not api.request("GET", api.jobs).refused)
    kubectl.wait("its schema", lambda: GROUP in api.request("GET", "/openapi/v3").body.get("paths", ()))


def test_an_operator_whose_cluster_does_not_know_the_kind_ends_and_names_the_cure(without_crd: Cluster) -> None:
    without_crd.kubectl.apply(rights(USER))
    started = time.monotonic()
    with Operator(without_crd, USER) as operator:
        assert operator.process.wait(timeout=30) == 1
        assert time.monotonic() - started < 20
        assert "apply the CustomResourceDefinition cpufinetunes.cpufinetune.dev" in operator.text()
        assert "Traceback" not in operator.text()
