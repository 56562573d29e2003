"""Points in time, as the API server writes them."""

from __future__ import annotations

import datetime as dt


def parse(text: object) -> dt.datetime | None:
    """The time that an API object states, if it does."""
    if not isinstance(text, str):
        return None
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


def stamp(time: dt.datetime) -> str:
    """In UTC, to the second."""
    # Not strftime, which writes years before 1000 with too few digits.
    return time.astimezone(dt.UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def words(seconds: float) -> str:
    """A span of time for people."""
    whole = round(seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= 2 * length:
            return f"{whole // length} {unit}"
    return f"{whole} s"
