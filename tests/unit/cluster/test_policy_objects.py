"""Which pods policies see, and what selectors select."""

from __future__ import annotations

from typing import Any

import pytest
from localcluster.policy_objects import read_world, selects

Object = dict[str, Any]


def pod(spec: Object, status: Object) -> Object:
    spec = {"nodeName": "node-a", "containers": [{"name": "c"}], **spec}
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("spec", "status", "seen"),
    [
        pytest.param({}, {"phase": "Running", "podIP": "10.0.0.1"}, True, id="running"),
        pytest.param({}, {"phase": "Pending", "podIP": "10.0.0.1"}, True, id="starting, with an address"),
        pytest.param({}, {"phase": "Pending"}, False, id="starting, without"),
        pytest.param({}, {"phase": "Succeeded", "podIP": "10.0.0.1"}, False, id="succeeded"),
        pytest.param({}, {"phase": "Failed", "podIP": "10.0.0.1"}, False, id="failed"),
        pytest.param({"nodeName": None}, {"phase": "Pending"}, False, id="not on a node"),
    ],
)
def test_an_address_is_a_pods_from_its_start_to_its_end(spec: Object, status: Object, *, seen: bool) -> None:
    assert [one.address for one in read_world([pod(spec, status)], []).pods] == ["10.0.0.1"] * seen


def test_ports_have_names_where_they_serve_as_long_as_the_pod_does() -> None:
    def container(name: str, number: int, **more: str) -> Object:
        return {"name": name, "ports": [{"name": name, "containerPort": number}, {"containerPort": 99}], **more}

    spec = {
        "initContainers": [container("first", 1), container("beside", 2, restartPolicy="Always")],
        "containers": [
            container("main", 3),
            {"name": "u", "ports": [{"name": "u", "containerPort": 4, "protocol": "UDP"}]},
        ],
    }
    (seen,) = read_world([pod(spec, {"podIP": "10.0.0.1"})], []).pods
    assert seen.ports == {("beside", "TCP"): 2, ("main", "TCP"): 3, ("u", "UDP"): 4}


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        pytest.param({"operator": "In", "values": ["x", "y"]}, {"x", "y"}, id="In"),
        pytest.param({"operator": "NotIn", "values": ["x"]}, {"y", "", None}, id="NotIn, also without the label"),
        pytest.param({"operator": "Exists"}, {"x", "y", ""}, id="Exists, also when empty"),
        pytest.param({"operator": "DoesNotExist"}, {None}, id="DoesNotExist"),
    ],
)
def test_expressions_select_by_value(expression: Object, selected: set[str | None]) -> None:
    selector = {"matchExpressions": [{"key": "k", **expression}]}
    values = ["x", "y", "", None]
    assert {value for value in values if selects(selector, {} if value is None else {"k": value})} == selected


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param({}, True, id="an empty selector"),
        pytest.param({"matchLabels": {"k": "v"}}, True, id="one label"),
        pytest.param({"matchLabels": {"k": "v", "l": "w"}}, False, id="all labels count"),
        pytest.param(
            {"matchLabels": {"k": "v"}, "matchExpressions": [{"key": "k", "operator": "DoesNotExist"}]},
            False,
            id="labels and expressions count",
        ),
    ],
)
def test_all_of_a_selector_has_to_hold(selector: Object, *, selected: bool) -> None:
    assert selects(selector, {"k": "v"}) is selected
