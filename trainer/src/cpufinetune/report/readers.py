"""Turns JSON values into the fields of a dataclass, by the fields' own types."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

Reader = Callable[[object], object]


class BadField(ValueError):  # noqa: N818 - reads as what it is
    """A value of another type than the field's."""


def readers(kind: type) -> dict[str, tuple[Reader, bool]]:
    """For each field of the dataclass: what reads its JSON value, and whether it must be there.

    Numbers may be null, read as NaN, but not `time` and durations: a run that diverges still takes real time.
    """
    hints = get_type_hints(kind)
    return {
        field.name: (
            _finite if hints[field.name] is float and _is_time(field.name) else _reader(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
    }


def _is_time(name: str) -> bool:
    return name == "time" or name.endswith("seconds")


def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _scalar(hint)
    if origin is Literal:
        return lambda value: _one_of(value, arguments)
    if origin is types.UnionType:
        inner = _reader(arguments[0])
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda value: tuple(item(each) for each in _instance(value, list))
    item = _reader(arguments[1])
    return lambda value: {key: item(each) for key, each in _instance(value, dict).items()}


def _scalar(hint: Any) -> Reader:
    if hint is float:
        return _number
    if hint is object:
        return lambda value: value
    return lambda value: _instance(value, hint)


def _number(value: object) -> float:
    if value is None:  # what NaN and the infinities are written as
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadField(f"expected a number, not {value!r:.80}")
    try:
        return float(value)
    except OverflowError as error:
        raise BadField("the number is too large") from error


def _finite(value: object) -> float:
    number = _number(value)
    if not math.isfinite(number):
        raise BadField(f"expected a finite number, not {value!r:.80}")
    return number


def _one_of(value: object, allowed: tuple[object, ...]) -> object:
    if value not in allowed:
        raise BadField(f"expected one of {', '.join(map(str, allowed))}, not {value!r:.80}")
    return value


def _instance(value: object, kind: type[Any]) -> Any:
    # bool is a subclass of int, but true is no count.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadField(f"expected {kind.__name__}, not {value!r:.80}")
    return value
