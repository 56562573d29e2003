from __future__ import annotations

import pytest

from cpufinetune.errors import JobError
from cpufinetune.world.dns import Zone, read_zone

KUBELET = """nameserver 10.96.0.10
search ml.svc.cluster.local svc.cluster.local cluster.local
options ndots:5
"""


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        pytest.param(KUBELET, Zone("ml", "cluster.local"), id="as the kubelet writes it"),
        pytest.param("search ml-2.svc.k8s.example.org", Zone("ml-2", "k8s.example.org"), id="another domain"),
        pytest.param("search a.svc.corp svc.corp corp\n", Zone("a", "corp"), id="a domain of one label"),
        pytest.param("search a.svc.b.c. svc.b.c.", Zone("a", "b.c"), id="absolute entries"),
        pytest.param("search A.SVC.Cluster.Local", Zone("a", "cluster.local"), id="in capitals"),
        pytest.param("search a.svc.old\nsearch b.svc.new\n", Zone("b", "new"), id="the last list counts"),
        pytest.param("search corp.example a.svc.b.c", Zone("a", "b.c"), id="behind another entry"),
        pytest.param("# search x.svc.y\n  search\ta.svc.b.c\t\n", Zone("a", "b.c"), id="comments and blanks"),
        pytest.param("search svc.svc.svc.svc", Zone("svc", "svc.svc"), id="a namespace called svc"),
    ],
)
def test_namespace_and_domain_are_read_from_the_search_list(text: str, zone: Zone) -> None:
    assert read_zone(text) == zone


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("nameserver 1.1.1.1\n", id="no list"),
        pytest.param("search corp.example svc.cluster.local\n", id="a host's list"),
        pytest.param("search a.svc.old\nsearch corp.example\n", id="overruled by a host's"),
        pytest.param("search a.b.svc.cluster.local\n", id="a namespace has no dots"),
        pytest.param("domain a.svc.cluster.local\n", id="another keyword"),
        pytest.param("search .svc.cluster.local a.svc.\n", id="gaps"),
    ],
)
def test_a_host_that_is_no_pod_is_told_what_is_missing(text: str) -> None:
    with pytest.raises(JobError, match="no search entry like <namespace>") as caught:
        read_zone(text)
    assert "ClusterFirst" in caught.value.fix


def test_peers_have_absolute_names() -> None:
    assert Zone("ml", "cluster.local").peers("mrpc-a", 2) == (
        "mrpc-a-0.mrpc-a.ml.svc.cluster.local.",
        "mrpc-a-1.mrpc-a.ml.svc.cluster.local.",
    )
