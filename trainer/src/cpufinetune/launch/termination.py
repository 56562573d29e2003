"""How a launcher says that it is over: a message for the operator, and a marker for its own next life."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpufinetune.errors import ExitCode
from cpufinetune.report.files import replace_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SCHEMA = 1
# Kubernetes cuts what is longer, in the middle of a word.
LONGEST_MESSAGE = 4096  # bytes
MARKER = "finished.json"

Document = dict[str, Any]

# All others are worth another life of the container.
FINAL = frozenset({ExitCode.OK, ExitCode.GAVE_UP, ExitCode.BAD_INPUT, ExitCode.DEADLINE})


@dataclass(frozen=True, slots=True)
class Ending:
    """How a launcher ends: its exit code and its last word."""

    code: ExitCode
    message: Document


def fit(document: Mapping[str, Any], limit: int = LONGEST_MESSAGE) -> str:
    """Return the document as JSON of at most `limit` bytes, without what matters least if need be."""
    text = _encode(document)
    shortened = deepcopy(dict(document))
    for shorten in _STEPS:
        if len(text.encode()) <= limit:
            return text
        shorten(shortened)
        text = _encode(shortened)
    if len(text.encode()) <= limit:
        return text
    return _encode({key: document[key] for key in ("schema", "uid", "code", "node") if key in document})


def _encode(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # File names may hold bytes that are no UTF-8.
    return text.encode("utf-8", "replace").decode()


def _shorten_exits(longest: int) -> Callable[[Document], None]:
    def act(document: Document) -> None:
        for rank in document.get("ranks", ()):
            if "message" in rank["lastExit"]:
                rank["lastExit"]["message"] = _cut(rank["lastExit"]["message"], longest)

    return act


def _fewer_ranks(most: int) -> Callable[[Document], None]:
    def act(document: Document) -> None:
        # The latest matter most: they ended the job.
        ranks = sorted(document.get("ranks", ()), key=lambda one: one["lastExit"].get("time", ""))
        if len(ranks) > most:
            document["ranks"] = sorted(ranks[len(ranks) - most :], key=lambda one: one["rank"])

    return act


def _shorten_failure(longest: int) -> Callable[[Document], None]:
    def act(document: Document) -> None:
        failure = document.get("failure")
        if failure:
            document["failure"] = {key: _cut(text, longest) for key, text in failure.items()}

    return act


def _fewer_metrics(most: int) -> Callable[[Document], None]:
    def act(document: Document) -> None:
        result = document.get("result")
        if result:
            result["metrics"] = dict(list(result["metrics"].items())[:most])

    return act


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


# From what is missed least to what is missed most.
_STEPS: tuple[Callable[[Document], None], ...] = (
    _shorten_exits(120),
    _fewer_ranks(16),
    _fewer_ranks(8),
    _shorten_failure(1000),
    _fewer_ranks(4),
    _shorten_failure(400),
    _fewer_metrics(8),
    _fewer_ranks(0),
    _shorten_failure(150),
    _fewer_metrics(1),
)


def publish(ending: Ending, message: Path, marker: Path) -> list[str]:
    """Write the termination message, then, if it is over for good, the marker; return what went wrong."""
    text = fit(ending.message)
    warnings = [write_message(message, text)]
    if ending.code in FINAL:
        warnings.append(write_marker(marker, text))
    return [warning for warning in warnings if warning is not None]


def write_message(path: Path, text: str) -> str | None:
    """Write the termination message in place, for it is a mount of its own; return what went wrong, if so."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        return f"warning: the termination message could not be written: {error}"
    return None


def write_marker(path: Path, text: str) -> str | None:
    """Leave a marker that the next life finds; return what went wrong, if so."""
    try:
        replace_text(path, text)
    except OSError as error:
        return f"warning: {path} could not be written: {error}"
    return None


def read_marker(path: Path) -> Document | None:
    """Return what a life before this one left as its last word, None if there was none.

    Raises:
        OSError: it may be there and cannot be read now; nobody must conclude from that what to do.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
