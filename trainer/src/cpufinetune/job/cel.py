"""The CRD's rules across fields (CEL), evaluated without an API server.

Rules about a change (`oldSelf`) are left out: one document alone changes nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cpufinetune.job.problems import Problem, spell_path
from cpufinetune.job.schema import Schema, structural_schema

Path = tuple[str | int, ...]

_NAME = ("metadata", "name")
_BEYOND_INT64 = 1 << 63
_HUGE = sys.float_info.max
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """A rule together with the part of a document that it is about."""

    path: Path
    rule: str
    message: str
    node: Schema
    value: object


def available() -> bool:
    """Whether the CEL interpreter is installed; without it only the API server checks the rules."""
    return importlib.util.find_spec("celpy") is not None


def violations(document: Mapping[str, object], broken: Collection[Path] = ()) -> tuple[Problem, ...]:
    """All rules that `document`, defaults filled in, breaks.

    Args:
        document: the whole document.
        broken: paths of fields that are unknown, missing or of a wrong type. Rules that look right at them are
            skipped, because what they would say only repeats the mistake in other words.
    """
    if not available():
        _say_that_rules_are_not_checked()
        return ()
    checks = (check for check in checks_of(document) if not _touches(check.path, broken))
    return tuple(problem for check in checks if (problem := _violation(check)) is not None)


def checks_of(value: object, node: Schema | None = None, path: Path = ()) -> Iterator[Check]:
    """Every rule that can be judged on a single document, from the outside in, for the parts that are there."""
    node = structural_schema() if node is None else node
    for rule in node.get("x-kubernetes-validations", ()):
        if "oldSelf" not in rule["rule"]:
            yield Check(path=path, rule=rule["rule"], message=rule["message"], node=node, value=value)
    for key, item in _children(value):
        child = _child_schema(node, key)
        if child is not None:
            yield from checks_of(item, child, (*path, key))


def _children(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _child_schema(node: Schema, key: str | int) -> Schema | None:
    if isinstance(key, int):
        return node.get("items")
    child: Schema | None = node.get("properties", {}).get(key, node.get("additionalProperties"))
    return child


def _touches(path: Path, broken: Collection[Path]) -> bool:
    return any(spot == path or spot[:-1] == path for spot in broken)


def _violation(check: Check) -> Problem | None:
    from celpy.evaluation import CELEvalError  # noqa: PLC0415 - it takes longer to import than all of the rest

    try:
        holds = _program(check.rule).evaluate({"self": _as_cel(check.value, check.node)})
    except CELEvalError:
        # The API server, too, takes a rule that cannot be evaluated as broken.
        holds = False
    if holds:
        return None
    message, _, fix = check.message.partition("; ")  # the CRD's way to put both into one text
    return Problem(spell_path(check.path or _NAME), _shown(check), message, fix)


def _shown(check: Check) -> object:
    """What the rule complains about: the fields that it reads; at the root the name, all it can see of metadata."""
    value = check.value
    if not isinstance(value, Mapping):
        return value
    if not check.path:
        metadata = value.get(_NAME[0])
        return metadata.get(_NAME[1]) if isinstance(metadata, Mapping) else None
    read = set(re.findall(r"self\.(\w+)", check.rule))
    return {name: item for name, item in value.items() if name in read} or value


@functools.cache
def _environment() -> Any:
    from celpy import Environment  # noqa: PLC0415 - see _violation

    limit = sys.getrecursionlimit()
    environment = Environment()
    sys.setrecursionlimit(limit)  # which the constructor changed for the whole process
    return environment


@functools.cache
def _program(rule: str) -> Any:
    environment = _environment()
    return environment.program(environment.compile(rule))


def _as_cel(value: Any, node: Schema) -> Any:
    """Convert by the schema as the API server does: 3 in a field of type number is a double."""
    from celpy import celtypes  # noqa: PLC0415 - see _violation
    from celpy.adapter import json_to_cel  # noqa: PLC0415 - see _violation

    if isinstance(value, Mapping):
        children = ((key, item, _child_schema(node, key)) for key, item in value.items())
        # Rules see nothing that the schema does not know, but for metadata.name.
        seen = ((key, item, child) for key, item, child in children if child is not None or isinstance(item, str))
        return celtypes.MapType({celtypes.StringType(key): _as_cel(item, child or {}) for key, item, child in seen})
    if isinstance(value, list):
        return celtypes.ListType([_as_cel(item, node["items"]) for item in value if "items" in node])
    if isinstance(value, float) and value.is_integer() and node.get("type") != "number":
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        whole = node.get("type") != "number" and abs(value) < _BEYOND_INT64
        return celtypes.IntType(value) if whole else celtypes.DoubleType(max(-_HUGE, min(value, _HUGE)))
    # What else YAML tags can make (bytes, sets) has the wrong type already and only must not crash here.
    return json_to_cel(value if value is None or isinstance(value, bool | float | str) else str(value))


@functools.cache
def _say_that_rules_are_not_checked() -> None:
    _LOGGER.warning("cel-python is not installed: rules across fields are checked by the API server only")
