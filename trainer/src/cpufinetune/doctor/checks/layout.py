"""The layout that several checks compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.cores import LayoutError, plan_layout

if TYPE_CHECKING:
    from cpufinetune.cores import Layout
    from cpufinetune.doctor.facts import Facts


def layout_of(facts: Facts) -> Layout | None:
    """Return the layout of the ranks that are meant, None if there is no core to lay them on."""
    try:
        return plan_layout(facts.kernel.description, ranks=facts.ranks)
    except LayoutError:
        return None


def rank_count(facts: Facts) -> int:
    """Return how many ranks this node would run."""
    layout = layout_of(facts)
    return 0 if layout is None else len(layout.ranks)


def plural(count: int, what: str) -> str:
    """Return for example `1 core` or `2 cores`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
