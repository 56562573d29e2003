"""The checks, one topic a file: pure functions from facts to lines of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.doctor.checks import collectives, cpu, memory, network, software, threads

if TYPE_CHECKING:
    from cpufinetune.doctor.check import Check
    from cpufinetune.doctor.facts import Facts


def examine(facts: Facts) -> list[Check]:
    """Judge all facts."""
    topics = (cpu, memory, threads, software, collectives, network)
    return [check for topic in topics for check in topic.examine(facts)]
