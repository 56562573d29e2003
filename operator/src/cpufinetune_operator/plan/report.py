"""What a pod says of the job, as far as the status can take it: pods are not to be trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cpufinetune_operator.model import Report
from cpufinetune_operator.plan.fit import field, fit

SCHEMA = 1
_STATES = ("Preparing", "Training", "Restarting", "Finished")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_]{0,62}[A-Za-z0-9])?")
_LONGEST_MESSAGE = 1024
# 256 ranks with the longest messages that the schema takes would be more than an object may hold.
LONGEST_LINE = 256
_EXIT_CODES = range(256)


def read(text: str | bytes, uid: str) -> Report | None:
    """The report in `text`; None if it is none, or of another job.

    A pod's address may by now belong to a pod of another job, hence the uid.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, Mapping) or raw.get("schema") != SCHEMA or raw.get("uid") != uid:
        return None
    return Report(
        state=_state(raw.get("state")),
        code=_code(raw.get("code")),
        attempt=fit(raw.get("attempt"), field("attempt")),
        restarts=fit(raw.get("restarts"), field("restarts")),
        progress=fit(raw.get("progress"), field("progress")) or {},
        layout=fit(raw.get("layout"), field("layout")) or {},
        ranks=tuple(_shortened(rank) for rank in fit(raw.get("ranks"), field("ranks")) or ()),
        result=fit(raw.get("result"), field("result")),
        failure=_failure(raw.get("failure")),
    )


def _state(value: object) -> str:
    return value if isinstance(value, str) and value in _STATES else ""


def _code(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value in _EXIT_CODES else None


def _shortened(rank: Mapping[str, Any]) -> Mapping[str, Any]:
    end = rank.get("lastExit", {})
    if len(end.get("message", "")) <= LONGEST_LINE:
        return rank
    return {**rank, "lastExit": {**end, "message": last_line(end["message"])}}


def _failure(value: object) -> tuple[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    reason = value.get("reason")
    sound = isinstance(reason, str) and _REASON.fullmatch(reason)
    texts = [sentence(text) for name in ("message", "fix") if isinstance(text := value.get(name), str)]
    message = "; ".join(text for text in texts if text) or "no message was left"
    return str(reason) if sound else "TrainingFailed", message


def sentence(text: str) -> str:
    """On one line, printable, and short enough for a condition."""
    cleaned = fit(text, {"type": "string"})
    return " ".join(cleaned.split())[:_LONGEST_MESSAGE]


def last_line(text: str) -> str:
    """The last line of a log with anything on it."""
    lines = [line for line in sentence_lines(text) if line]
    return lines[-1][:LONGEST_LINE] if lines else ""


def sentence_lines(text: str) -> list[str]:
    """The lines of a log, cleaned."""
    return [" ".join(line.split()) for line in fit(text, {"type": "string"}).splitlines()]
