"""From a document to a `Job` and back, driven by the dataclasses' own type hints."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from typing import Any

from cpufinetune.job.document import API_VERSION, KIND, Job, Spec
from cpufinetune.job.problems import InvalidJob
from cpufinetune.job.schema import with_defaults
from cpufinetune.job.validate import validate

if typing.TYPE_CHECKING:
    from collections.abc import Mapping


def parse(document: Mapping[str, object], *, rules: bool = True) -> Job:
    """Validate a document, fill in its defaults and give it types.

    Args:
        document: what YAML, JSON or the API server gave; `status` and the server's metadata may be there.
        rules: check the rules across fields as well. An object that the API server admitted keeps them already, and
            leaving them out saves a third of a second.

    Raises:
        InvalidJob: with everything that is wrong.
    """
    problems = validate(document, rules=rules)
    if problems:
        raise InvalidJob(problems)
    filled = with_defaults(document)
    metadata = filled["metadata"]
    return Job(
        name=metadata["name"],
        namespace=metadata.get("namespace"),
        uid=metadata.get("uid"),
        spec=_build(Spec, filled["spec"]),
    )


def to_document(job: Job) -> dict[str, Any]:
    """The document that `parse` turns into `job`, with all defaults written out and without what is not given."""
    metadata = {"name": job.name, "namespace": job.namespace, "uid": job.uid}
    given = {name: value for name, value in metadata.items() if value is not None}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": given, "spec": _plain(job.spec)}


def camel_case(name: str) -> str:
    """`batch_size` as `batchSize`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def snake_case(name: str) -> str:
    """`batchSize` as `batch_size`."""
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _build(hint: Any, value: Any) -> Any:
    """A valid `value` as the type that `hint` names."""
    if dataclasses.is_dataclass(hint):
        hints = _hints(typing.cast("type", hint))
        fields = {snake_case(key): item for key, item in value.items()}
        return typing.cast("Any", hint)(**{name: _build(hints[name], item) for name, item in fields.items()})
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        wanted = [arg for arg in args if arg is not types.NoneType]
        if len(wanted) > 1:  # a number or a word
            wanted = [str if isinstance(value, str) else int]
        return _build(wanted[0], value)
    if origin is tuple:
        return tuple(_build(args[0], item) for item in value)
    if origin is dict:
        return {key: _build(args[1], item) for key, item in value.items()}
    # JSON knows one kind of number: 3 may be meant for a float and 3.0 for an int.
    return hint(value) if hint in {int, float} else value


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {camel_case(name): _plain(item) for name, item in items if item is not None}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, dict) else value
