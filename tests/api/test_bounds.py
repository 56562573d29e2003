"""Both sides draw every bound of the schema at the same spot; documents come from the schema itself."""

from __future__ import annotations

import copy
import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune.job.schema import Schema, structural_schema
from cpufinetune.job.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.api.conftest import Api, Build, Document

FILES = "files: {train: a.csv, validation: b.csv, test: c.csv}"

# Fields that a smallest document has no room for: what must be there, or gone, for them to be judged alone.
ROOM = {
    "spec.model.claim": ["model={claim: a}"],
    "spec.model.path": ["model={path: a}"],
    "spec.dataset.claim": [f"dataset={{claim: a, {FILES}}}"],
    "spec.dataset.path": [f"dataset={{path: a, {FILES}}}"],
    "spec.dataset.files": [f"dataset={{path: a, {FILES}}}"],
    "spec.dataset.splits": ["dataset.splits={train: a, validation: b, test: c}"],
    "spec.training.microBatchSize": ["training.batchSize=65536"],
    "spec.training.lora": ["training.lora={targets: [a]}"],
    "spec.placement.tolerations": ["placement.tolerations=[{key: a, effect: NoExecute}]"],
    "spec.output.volume": ["output={volume: {size: 1Gi}}"],
    "spec.output.claim": ["output={claim: a}"],
    "spec.output.path": ["output={path: a}"],
}

# Beyond it the API server takes some fractions for whole numbers: it compares with a tolerance.
SHARP = 1_000_000
ODD: tuple[Any, ...] = (True, 1, "", "..", [], {})
TEXTS = ("a", "A", "1", "a.csv", "a-hub-token")


def fields(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for name, field in node.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    if "items" in node:
        yield f"{path}.0", node["items"]
        yield from fields(node["items"], f"{path}.0")
    if "additionalProperties" in node:
        yield f"{path}.key", node["additionalProperties"]


FIELDS = dict(fields(structural_schema()["properties"]["spec"], "spec"))


def values(node: Schema) -> Iterator[Any]:
    """Values at every bound of a field, just within and just beyond."""
    for name, step in (("minimum", -1), ("maximum", 1)):
        if name in node:
            yield from (node[name], node[name] + step)
            if node[name] < SHARP:
                yield node[name] + step / 4
    for length in edges(node, "minLength", "maxLength"):
        text = next((text for text in TEXTS if re.search(node.get("pattern", ""), text)), "a")
        yield text[0] * (length - len(text)) + text
    for length in edges(node, "minItems", "maxItems"):
        yield from ([f"A{number}" for number in range(length)], [{"operator": "Exists"}] * length)
    for length in edges(node, "minProperties", "maxProperties"):
        yield {f"a{number}": "b" for number in range(length)}
    for word in node.get("enum", ()):
        yield from (word, word.swapcase())


def edges(node: Schema, least: str, most: str) -> set[int]:
    """The smallest and the largest size, and those beyond."""
    sizes = {node[name] + step for name, step in ((least, -1), (least, 0), (most, 0), (most, 1)) if name in node}
    return {size for size in sizes if size >= 0}


def put(document: Document, path: str, value: object) -> Document:
    """Return the document with `value` at the path, of which numbers count list entries."""
    changed = copy.deepcopy(document)
    spot: Any = changed
    *way, last = (int(part) if part.isdecimal() else part for part in path.split("."))
    for part, below in itertools.pairwise([*way, last]):
        spot = spot.setdefault(part, [] if isinstance(below, int) else {}) if isinstance(spot, dict) else spot[part]
    if isinstance(spot, list):
        spot[:] = [value]
    else:
        spot[last] = value
    return changed


@pytest.mark.parametrize("path", FIELDS)
def test_both_sides_agree_about_every_value_of(path: str, api: Api, document: Build) -> None:
    base = document(*next((changes for field, changes in ROOM.items() if path.startswith(field)), []))
    refused = set()
    for value in (*ODD, *values(FIELDS[path])):
        given = put(base, path, value)
        # Rules are slow to check, and need not be where the schema says no.
        problems = validate(given, rules=False) or validate(given)
        assert api.try_out(given).refused == bool(problems), (value, problems)
        refused.add(bool(problems))
    assert refused == {False, True} or "properties" in FIELDS[path], "every value meets the same fate"
