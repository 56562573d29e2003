"""Kubernetes quantities of memory."""

from __future__ import annotations

import re

_QUANTITY = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMGTPE]i|[kMGTPE]|m)?")
_UNITS: dict[str | None, float] = {
    None: 1.0,
    "m": 1e-3,
    "k": 1e3,
    **{unit: 10.0 ** (3 * power) for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}


def to_bytes(text: str) -> int:
    """Return the bytes of a quantity such as `64Gi` or `500M`.

    Raises:
        ValueError: it is no quantity.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no quantity; write for example 64Gi")
    return round(float(found["number"]) * _UNITS[found["unit"]])
