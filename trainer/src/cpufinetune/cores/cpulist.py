"""CPU sets as Linux writes them: `0-3,8`."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_cpus(text: str) -> tuple[int, ...]:
    """Read a cpulist into ascending ids without duplicates; blank text is the empty set.

    Raises:
        ValueError: The text is not a cpulist. Source of the format: cpuset(7), "List format".
    """
    ids: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            raise ValueError(f"{part!r} in the cpulist {text!r} is neither a CPU nor a range of CPUs")
        if dash and int(last) < int(first):
            raise ValueError(f"the range {part!r} in the cpulist {text!r} runs backwards")
        ids.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(ids))


def format_cpus(ids: Iterable[int]) -> str:
    """Write ids, in any order, as the shortest ascending cpulist."""
    # Within a run of consecutive ids, id minus position is constant.
    runs = groupby(enumerate(sorted(set(ids))), key=lambda pair: pair[1] - pair[0])
    spans = [[cpu for _, cpu in run] for _, run in runs]
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
