"""Progress of a run: what ranks tell, what it adds up to, and how it is shown and kept.

`plot` and `rich_console` are imported where they are used: a pod needs neither.
"""

from cpufinetune.report.console import Console, PlainConsole, make_console
from cpufinetune.report.document import build_report, write_report
from cpufinetune.report.events import (
    BadEvent,
    Checkpointed,
    Evaluation,
    Event,
    Failure,
    Heartbeat,
    Phase,
    PhaseName,
    Resources,
    Result,
    Setup,
    Step,
    decode,
    encode,
)
from cpufinetune.report.progress import Progress
from cpufinetune.report.text import rank_line

__all__ = [
    "BadEvent",
    "Checkpointed",
    "Console",
    "Evaluation",
    "Event",
    "Failure",
    "Heartbeat",
    "Phase",
    "PhaseName",
    "PlainConsole",
    "Progress",
    "Resources",
    "Result",
    "Setup",
    "Step",
    "build_report",
    "decode",
    "encode",
    "make_console",
    "rank_line",
    "write_report",
]
