from __future__ import annotations

import pytest

from cpufinetune.errors import JobError
from cpufinetune.world.identity import Identity, identify


@pytest.mark.parametrize(
    ("pod_name", "set_name", "node"),
    [
        pytest.param("mrpc-0", "mrpc", 0, id="the first pod"),
        pytest.param("mrpc-17", "mrpc", 17, id="an ordinal of two digits"),
        pytest.param("my-job-3", "my-job", 3, id="a dash in the name"),
        pytest.param("job-2-1", "job-2", 1, id="a name that ends in a number"),
        pytest.param("7-1", "7", 1, id="a name that is a number"),
    ],
)
def test_the_ordinal_is_the_node(pod_name: str, set_name: str, node: int) -> None:
    identity = identify(pod_name)
    assert identity == Identity(set_name, node)
    assert identity.coordinates == (node == 0)


@pytest.mark.parametrize(
    "pod_name", ["", "mrpc", "mrpc-", "-1", "mrpc-x", "Mrpc-1", "mrpc--1-", "mrpc-1.svc", "mrpc-1\n"]
)
def test_other_names_are_no_pods_of_a_set(pod_name: str) -> None:
    with pytest.raises(JobError, match="does not end in an ordinal") as caught:
        identify(pod_name)
    assert caught.value.reason == "BadPodName"
