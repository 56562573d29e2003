"""YAML as Kubernetes reads it, where PyYAML reads it differently.

`2e-5` is a number, `12:30` and `2026-01-01` are text, keys are text, and a key given twice is an error.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import yaml

from cpufinetune.job.problems import InvalidJob, Problem

if TYPE_CHECKING:
    from collections.abc import Hashable

_MOST_NODES = 100_000
_ONE_DOCUMENT = "expected a single document in the stream"


class _KubernetesLoader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the base class's way, filled below

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
            if self._name(key) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(self._name(key))
        self.flatten_mapping(node)
        return {self._name(key): self.construct_object(value, deep=deep) for key, value in node.value}

    def _name(self, key: yaml.ScalarNode) -> str:
        """The key as text: kubectl writes `yes` as true and `0x10` as 16."""
        if key.tag == "tag:yaml.org,2002:merge":
            return str(key.value)
        value = self.construct_object(key)
        if value is None:
            raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
        return json.dumps(value) if isinstance(value, bool | int) else str(key.value)


for _tag, _form, _first in (
    ("bool", r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("int", r"[-+]?(0b[01]+|0x[0-9a-fA-F]+|0o?[0-7]+|0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _KubernetesLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_form})$"), list(_first))


def read_yaml(text: str, source: str) -> Any:
    """The one document in `text`; None if there is none.

    Args:
        text: YAML or JSON.
        source: what to call it in problems, such as the file's name.

    Raises:
        InvalidJob: if it is not YAML or more than one document; the problem's path is `source:line`.
    """
    try:
        loader = _KubernetesLoader(text)
        node = loader.get_single_node()
        if _expanded_size(node, {}) > _MOST_NODES:
            raise InvalidJob([Problem(source, None, "repeats its anchors too often", "write the values out")])
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise InvalidJob([_explain(error, source)]) from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidJob([Problem(source, None, f"is not YAML: {error}", "correct it")]) from error
    except RecursionError as error:
        raise InvalidJob([Problem(source, None, "is nested too deeply", "flatten it")]) from error


def _expanded_size(node: yaml.Node | None, sizes: dict[int, float]) -> float:
    """Number of nodes once every alias is written out, which a few lines can make astronomic."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # what an anchor within itself comes to
        below = (part for item in node.value for part in (item if isinstance(item, tuple) else (item,)))
        sizes[id(node)] = 1 + sum(_expanded_size(part, sizes) for part in below)
    return sizes[id(node)]


def _explain(error: yaml.MarkedYAMLError, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    path = f"{source}:{mark.line + 1}" if mark else source
    if error.context == _ONE_DOCUMENT:
        return Problem(path, None, "a second document starts here", "keep one job in one file")
    message = error.problem or "is not YAML"
    if "'\\t'" in message:
        return Problem(path, None, "YAML does not allow tabs for indentation", "indent with spaces")
    context = f" {error.context}" if error.context else ""
    return Problem(path, None, f"{message}{context}", "correct the YAML at this line")
