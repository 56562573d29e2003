"""The CRD as the one source of truth: its schema as JSON Schema, and its defaults."""

from __future__ import annotations

import copy
import functools
import importlib.resources
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

from cpufinetune.job.document import API_VERSION, KIND

Schema = Mapping[str, Any]

_SAME_IN_JSON_SCHEMA = (
    "description",
    "enum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "required",
    "type",
)
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_NAME = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_LABEL_VALUE = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_OBJECT_META = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)


def crd_text() -> str:
    """The CRD's YAML: beside this module in a wheel, under `manifests/` in a checkout."""
    packaged = importlib.resources.files("cpufinetune.job").joinpath("crd.yaml")
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    checkout = pathlib.Path(__file__).resolve().parents[4]
    return (checkout / "manifests" / "crd" / "cpufinetunes.yaml").read_text(encoding="utf-8")


@functools.cache
def structural_schema() -> Schema:
    """The `openAPIV3Schema` of the whole document, as Kubernetes reads it; not to be changed."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times faster, where it is built in
    crd = yaml.load(crd_text(), Loader=loader)  # noqa: S506 - both are safe loaders
    (version,) = crd["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


@functools.cache
def document_schema() -> Schema:
    """JSON Schema (2020-12) of a document as a user writes it. Unknown fields are errors, `status` is not looked at."""
    return {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": KIND},
            "metadata": _metadata_schema(),
            "spec": to_json_schema(structural_schema()["properties"]["spec"]),
            "status": {},
        },
    }


def _metadata_schema() -> Schema:
    """What the API server itself asks of every object's metadata, as far as a user writes it."""
    return {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {
            **{name: {} for name in _OBJECT_META},
            "name": {
                "type": "string",
                "description": "Name of the job: lower-case letters, digits and '-'. For example `mrpc`.",
                "maxLength": 253,
                "pattern": rf"^{_DNS_NAME}\Z",
            },
            "namespace": {
                "type": "string",
                "description": "Namespace of the job. For example `training`.",
                "maxLength": 63,
                "pattern": rf"^{_DNS_LABEL}\Z",
            },
            "labels": _texts_schema(_DNS_NAME, {"maxLength": 63, "pattern": rf"^({_LABEL_VALUE})?\Z"}),
            # The API server looks at the names of annotations in lower case.
            "annotations": _texts_schema(f"(?i:{_DNS_NAME})", {}),
        },
    }


def _texts_schema(prefix: str, value: Schema) -> Schema:
    """Labels or annotations, of which a null counts as empty text."""
    name = {
        "description": "Name of a label or an annotation. For example `team`.",
        "maxLength": 317,
        "pattern": rf"^({prefix}/)?{_LABEL_NAME}\Z",
    }
    text = {"type": ["string", "null"], "description": "Text by that name. For example `nlp`.", **value}
    return {
        "type": ["object", "null"],
        "description": "Texts by name. For example `{team: nlp}`.",
        "propertyNames": name,
        "additionalProperties": text,
    }


def to_json_schema(node: Schema) -> dict[str, Any]:
    """Translate a structural schema, whose dialect is that of OpenAPI 3.0, to JSON Schema 2020-12."""
    out: dict[str, Any] = {key: node[key] for key in _SAME_IN_JSON_SCHEMA if key in node}
    if node.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if "pattern" in node:
        # Go's `$` means the very end; Python's would let a newline through.
        out["pattern"] = node["pattern"].removesuffix("$") + r"\Z" if node["pattern"].endswith("$") else node["pattern"]
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if bound in node:
            out[exclusive if node.get(exclusive) else bound] = node[bound]
    if node.get("x-kubernetes-list-type") == "set":
        out["uniqueItems"] = True
    if "items" in node:
        out["items"] = to_json_schema(node["items"])
    if node.get("type") == "object":
        out["properties"] = {name: to_json_schema(field) for name, field in node.get("properties", {}).items()}
        values = node.get("additionalProperties")
        out["additionalProperties"] = to_json_schema(values) if isinstance(values, Mapping) else False
    return out


def with_defaults(value: object, node: Schema | None = None) -> Any:
    """A copy of `value` with nulls dropped and defaults filled in, as the API server does before it validates."""
    node = structural_schema() if node is None else node
    if isinstance(value, Mapping):
        return _object_with_defaults(value, node)
    if isinstance(value, list) and "items" in node:
        return [with_defaults(item, node["items"]) for item in value]
    return value


def _object_with_defaults(value: Mapping[str, object], node: Schema) -> dict[str, Any]:
    fields: Schema = node.get("properties", {})
    # A null counts as not given where the schema knows the field; elsewhere it stays, to be complained about.
    filled = {key: item for key, item in value.items() if item is not None or key not in fields}
    for name, field in fields.items():
        if name not in filled and "default" in field:
            filled[name] = copy.deepcopy(field["default"])
    known = {name: with_defaults(item, fields[name]) for name, item in filled.items() if name in fields}
    return {**filled, **known}
