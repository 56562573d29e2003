"""Foreign values made to fit the CRD's schema: whatever a pod reports, the API server takes the status."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

from cpufinetune.job.schema import structural_schema
from cpufinetune_operator.plan import times

Schema = Mapping[str, Any]

_INT_BOUNDS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_UNFIT = object()


@functools.cache
def status_schema() -> Schema:
    """The schema of the whole status."""
    schema: Schema = structural_schema()["properties"]["status"]
    return schema


def fit(value: object, schema: Schema) -> Any:
    """What of `value` the schema takes, cut to its bounds; None if nothing."""
    fitted = _fit(value, schema)
    return None if fitted is _UNFIT else fitted


def field(name: str) -> Schema:
    """The schema of a field of the status."""
    schema: Schema = status_schema()["properties"][name]
    return schema


def _fit(value: object, schema: Schema) -> Any:
    kind = schema.get("type")
    if kind == "object":
        return _object(value, schema)
    if kind == "array":
        return _array(value, schema)
    if kind == "string":
        return _string(value, schema)
    if kind == "boolean":
        return value if isinstance(value, bool) else _UNFIT
    return _number(value, schema, whole=kind == "integer")


def _object(value: object, schema: Schema) -> Any:
    if not isinstance(value, Mapping):
        return _UNFIT
    properties: Schema = schema.get("properties", {})
    others = schema.get("additionalProperties")
    fitted = {}
    for key, item in value.items():
        below = properties.get(key, others)
        if isinstance(key, str) and isinstance(below, Mapping) and (part := _fit(item, below)) is not _UNFIT:
            fitted[_clean(key)] = part
    if any(name not in fitted for name in schema.get("required", ())):
        return _UNFIT
    return dict(list(fitted.items())[: schema.get("maxProperties")])


def _array(value: object, schema: Schema) -> Any:
    if not isinstance(value, list | tuple):
        return _UNFIT
    keys = schema.get("x-kubernetes-list-map-keys", ())
    most = schema.get("maxItems")
    fitted: dict[object, Any] = {}
    for position, item in enumerate(value):
        part = _fit(item, schema["items"])
        if part is not _UNFIT:
            fitted.setdefault(tuple(part.get(key) for key in keys) if keys else position, part)
        if len(fitted) == most:
            break
    return list(fitted.values())


def _string(value: object, schema: Schema) -> Any:
    if not isinstance(value, str):
        return _UNFIT
    if schema.get("format") == "date-time":
        return _time(value)
    text = _clean(value)[: schema.get("maxLength")]
    if len(text) < schema.get("minLength", 0):
        return _UNFIT
    if "pattern" in schema and not re.search(schema["pattern"], text):
        return _UNFIT
    return text if text in schema.get("enum", (text,)) else _UNFIT


def _time(value: str) -> Any:
    time = times.parse(value)
    try:
        return _UNFIT if time is None else times.stamp(time)
    except OverflowError:  # at the very ends of the calendar
        return _UNFIT


def _number(value: object, schema: Schema, *, whole: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_as_float(value)):
        return _UNFIT
    lowest, highest = _INT_BOUNDS.get(schema.get("format", ""), (-math.inf, math.inf))
    number: float = max(schema.get("minimum", lowest), lowest, min(value, schema.get("maximum", highest), highest))
    return int(number) if whole else float(number)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _clean(text: str) -> str:
    """Without what is no character at all, and without control characters, that would garble a terminal."""
    sound = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in sound)
