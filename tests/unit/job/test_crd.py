"""The CRD as a piece of API: complete, bounded, and the same as the dataclasses."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cpufinetune.job.document import Auto, Spec
from cpufinetune.job.parse import _build, camel_case, snake_case
from cpufinetune.job.schema import Schema, crd_text, document_schema, structural_schema, with_defaults

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

CRD = yaml.safe_load(crd_text())
VERSION = CRD["spec"]["versions"][0]


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if below in schema:
            yield from nodes(schema[below], f"{path}.{below}")


ALL = dict(nodes(structural_schema()))
OURS = {path: node for path, node in ALL.items() if path not in {".apiVersion", ".kind", ".metadata"}}


def classes(cls: type, schema: Schema, path: str) -> Iterator[tuple[str, type, Schema]]:
    """Every dataclass of the document with the schema that it mirrors."""
    yield path, cls, schema
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        inner, node = given(hints[field.name]), schema["properties"][camel_case(field.name)]
        if typing.get_origin(inner) is tuple:
            inner, node = typing.get_args(inner)[0], node["items"]
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from classes(inner, node, f"{path}.{camel_case(field.name)}")


def given(hint: Any) -> Any:
    """The hint without `| None`."""
    if typing.get_origin(hint) not in {types.UnionType, typing.Union}:
        return hint
    rest = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
    return rest[0] if len(rest) == 1 else set(rest)


def kind_of(hint: Any) -> Any:
    """How the CRD spells a type: `(type, enum)`."""
    hint = given(hint)
    if isinstance(hint, set):
        return ("int-or-string", None) if hint in ({str, int}, {Auto, int}) else hint
    if typing.get_origin(hint) is typing.Literal:
        return "string", list(typing.get_args(hint))
    if dataclasses.is_dataclass(hint):
        return "object", None
    names = {str: "string", int: "integer", float: "number", bool: "boolean", tuple: "array", dict: "object"}
    return names[typing.get_origin(hint) or hint], None


PAIRS = list(classes(Spec, structural_schema()["properties"]["spec"], "spec"))
FIELDS = [
    pytest.param(cls, field, schema, id=f"{path}.{camel_case(field.name)}")
    for path, cls, schema in PAIRS
    for field in dataclasses.fields(typing.cast("Any", cls))
]


@pytest.mark.parametrize(("cls", "schema"), [pytest.param(cls, schema, id=path) for path, cls, schema in PAIRS])
def test_crd_and_dataclass_have_the_same_fields_in_the_same_order(cls: type, schema: Schema) -> None:
    assert [camel_case(field.name) for field in dataclasses.fields(typing.cast("Any", cls))] == list(
        schema["properties"]
    )


@pytest.mark.parametrize(("cls", "field", "schema"), FIELDS)
def test_crd_and_dataclass_agree_on_type_and_enum(cls: type, field: dataclasses.Field[Any], schema: Schema) -> None:
    node = schema["properties"][camel_case(field.name)]
    spelt = "int-or-string" if node.get("x-kubernetes-int-or-string") else node["type"]
    assert kind_of(typing.get_type_hints(cls)[field.name]) == (spelt, node.get("enum"))


@pytest.mark.parametrize(("cls", "field", "schema"), FIELDS)
def test_crd_and_dataclass_agree_on_required_and_default(
    cls: type, field: dataclasses.Field[Any], schema: Schema
) -> None:
    name = camel_case(field.name)
    node = schema["properties"][name]
    factory = field.default_factory
    default = factory() if factory is not dataclasses.MISSING else field.default
    assert (default is dataclasses.MISSING) == (name in schema.get("required", []))
    if "default" in node:
        built = _build(typing.get_type_hints(cls)[field.name], with_defaults(node["default"], node))
        assert (built, type(built)) == (default, type(default))
    else:
        assert default is None or default is dataclasses.MISSING


@pytest.mark.parametrize(("path", "node"), ALL.items(), ids=ALL)
def test_every_field_is_described(path: str, node: Schema) -> None:
    if path != ".metadata":  # which Kubernetes describes itself, and does not let us
        assert re.fullmatch(r"[A-Z-].{9,}\.", node["description"])


@pytest.mark.parametrize(("path", "node"), OURS.items(), ids=OURS)
def test_every_value_is_bounded(path: str, node: Schema) -> None:
    kind = node.get("type")
    if kind == "string":
        assert "enum" in node or "maxLength" in node
    elif kind in {"integer", "number"}:
        assert "minimum" in node
        assert "maximum" in node or not path.startswith(".spec")
    elif kind == "array":
        assert {"maxItems", "x-kubernetes-list-type"} <= node.keys()
    elif kind == "object":
        assert ("additionalProperties" in node) == ("maxProperties" in node)
    elif kind is None:
        assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        assert {"maxLength", "x-kubernetes-validations"} <= node.keys()


@pytest.mark.parametrize(("path", "node"), ALL.items(), ids=ALL)
def test_the_schema_is_structural(path: str, node: Schema) -> None:
    assert not node.keys() & {
        "$ref",
        "oneOf",
        "allOf",
        "not",
        "patternProperties",
        "uniqueItems",
        "definitions",
        "const",
    }
    assert ("type" in node) != bool(node.get("x-kubernetes-int-or-string")), path
    assert not {"properties", "additionalProperties"} <= node.keys()
    assert set(node.get("required", [])) <= node.get("properties", {}).keys()
    assert all("default" not in node["properties"][name] for name in node.get("required", []))
    for key in node.get("x-kubernetes-list-map-keys", []):
        assert key in node["items"]["required"]


@pytest.mark.parametrize(("path", "node"), ALL.items(), ids=ALL)
def test_defaults_are_valid_themselves(path: str, node: Schema) -> None:
    if "default" in node and path.startswith(".spec"):
        properties: Any = document_schema()
        for part in path.strip(".").split("."):
            properties = (
                properties[part] if part in {"items", "additionalProperties"} else properties["properties"][part]
            )
        Draft202012Validator(properties).validate(with_defaults(node["default"], node))


def test_patterns_mean_the_same_to_go_and_to_python() -> None:
    for path, node in OURS.items():
        if "pattern" in node:
            assert node["pattern"].startswith("^"), path
            assert node["pattern"].endswith("$"), path
            assert not re.search(r"\(\?|\\[dwsbAZz]|[*+?}][+]", node["pattern"]), path


def test_examples_in_descriptions_are_valid() -> None:
    for path, node in OURS.items():
        example = re.search(r"For example `([^`]+)`", node.get("description", ""))
        if example and node["type"] == "string":
            assert re.search(node.get("pattern", ""), example[1]), path
            assert len(example[1]) <= node["maxLength"], path


def test_the_schema_is_json_schema() -> None:
    Draft202012Validator.check_schema(document_schema())


def test_every_rule_says_what_is_wrong_and_what_to_do() -> None:
    for path, node in ALL.items():
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["message"].count("; ") == 1, path
            assert len(rule["message"]) < 200, path


def test_names_are_those_of_the_design() -> None:
    names = CRD["spec"]["names"]
    assert CRD["metadata"]["name"] == "cpufinetunes.cpufinetune.dev"
    assert (CRD["spec"]["group"], VERSION["name"], CRD["spec"]["scope"]) == (
        "cpufinetune.dev",
        "v1alpha1",
        "Namespaced",
    )
    assert (names["kind"], names["shortNames"], names["categories"]) == ("CpuFineTune", ["cft"], ["training"])
    assert VERSION["subresources"] == {"status": {}}
    assert ALL[".status"]["default"] == {"observedGeneration": -1}
    assert ALL[".status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_columns_are_those_of_the_design_and_show_fields_that_exist() -> None:
    columns = VERSION["additionalPrinterColumns"]
    wanted = "PHASE READY STEP LOSS METRIC SPEED ETA RESTARTS BACKEND AGE"
    assert " ".join(column["name"].upper() for column in columns) == wanted
    for column in columns:
        path = column["jsonPath"]
        if path.startswith(".status") and "[" not in path:
            assert ALL[path]["type"] == column["type"]


def test_camel_and_snake_case_are_inverse_for_every_field() -> None:
    for _, schema in nodes(structural_schema()["properties"]["spec"]):
        for name in schema.get("properties", {}):
            assert camel_case(snake_case(name)) == name
