"""Values as JSON can hold them, and the camelCase names they go by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any


def camel(name: str) -> str:
    """`total_steps` as `totalSteps`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def plain(value: object) -> Any:
    """The value as strict JSON holds it: NaN and infinities are null, dataclasses are objects in camelCase.

    Anything unknown becomes its text, so that a report never fails for an odd value.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return {camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple | AbstractSet):
        items = [plain(item) for item in value]
        return sorted(items, key=str) if isinstance(value, AbstractSet) else items
    return str(value)


def timestamp(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
