"""From a file, and what the command line says on top of it, to a `Job`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cpufinetune.job.parse import parse
from cpufinetune.job.problems import InvalidJob, Problem
from cpufinetune.job.yaml_text import read_yaml

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from cpufinetune.job.document import Job

_MOST_BYTES = 1 << 20  # the API server takes little more in one object


def load(path: pathlib.Path, overrides: Sequence[str] = (), *, rules: bool = True) -> Job:
    r"""Read, override, validate and parse one job document.

    Args:
        path: a file with one YAML (or JSON) document in UTF-8, at most 1 MiB.
        overrides: `field.path=value` each, applied in order; the value is YAML, the path starts below `spec` unless it
            starts with `spec` or `metadata`, numbers index lists and `\.` is a dot within a key. `null` removes.
        rules: see `parse`.

    Raises:
        InvalidJob: with all that is wrong: of the file first, then of the overrides, then of the job.
    """
    document = read(path)
    problems = tuple(problem for text in overrides if (problem := override(document, text)) is not None)
    if problems:
        raise InvalidJob(problems)
    return parse(document, rules=rules)


def read(path: pathlib.Path) -> dict[str, Any]:
    """The mapping that the file holds, not yet validated.

    Raises:
        InvalidJob: naming file and line.
    """
    document = read_yaml(_text_of(path), str(path))
    if document is None:
        raise InvalidJob([Problem(str(path), None, "holds no document", "write a CpuFineTune into it")])
    if not isinstance(document, dict):
        raise InvalidJob(
            [Problem(f"{path}:1", document, "must be a mapping of fields", "start with apiVersion: and kind:")]
        )
    return document


def _text_of(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InvalidJob(
            [Problem(str(path), None, f"cannot be read: {reason}", "check the file's name and rights")]
        ) from error
    if len(data) > _MOST_BYTES:
        raise InvalidJob(
            [Problem(str(path), None, f"is larger than {_MOST_BYTES} bytes", "check that it is a job document")]
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidJob([Problem(f"{path}:{line}", None, "is not UTF-8", "save the file as UTF-8")]) from error


def override(document: dict[str, Any], text: str) -> Problem | None:
    """Apply one `field.path=value` to `document`, in place; what is wrong with it, if anything.

    A path that the schema does not know is set all the same, for validation to complain about by name.
    """
    spelt, equals, value = text.partition("=")
    keys = [key.replace("\\.", ".") for key in re.split(r"(?<!\\)\.", re.sub(r"\[(\d+)\]", r".\1", spelt.strip()))]
    if not equals or not all(keys):
        return Problem(
            f"--set {text}", None, "is not of the form field.path=value", "write for example training.epochs=1"
        )
    if keys[0] not in {"spec", "metadata"}:
        keys = ["spec", *keys]
    try:
        parsed = read_yaml(value, f"--set {spelt}")
    except InvalidJob as error:
        return error.problems[0]
    return _set(document, keys, parsed, text)


def _set(document: dict[str, Any], keys: Sequence[str], value: object, text: str) -> Problem | None:
    """Walk to the last of `keys`, making mappings on the way, and put `value` there."""
    spot: Any = document
    for depth, key in enumerate(keys):
        last = depth == len(keys) - 1
        where = ".".join(keys[: depth + 1])
        index: Any = key
        if isinstance(spot, list):
            if not key.isdecimal() or int(key) > len(spot):
                return Problem(
                    f"--set {text}", None, f"{where} is no entry of the list", f"use an index from 0 to {len(spot)}"
                )
            index = int(key)
            if index == len(spot):
                spot.append(None)
        elif not isinstance(spot, dict):
            return Problem(
                f"--set {text}", None, f"{where} is below a plain value", "set the field above it as a whole"
            )
        if last:
            spot[index] = value
        else:
            if (spot[index] if isinstance(spot, list) else spot.get(index)) is None:
                spot[index] = {}
            spot = spot[index]
    return None
