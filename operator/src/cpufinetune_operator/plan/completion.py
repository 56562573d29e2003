"""Whether the job has ended, and how: from what its launchers left as their last words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from cpufinetune_operator import names
from cpufinetune_operator.model import Report
from cpufinetune_operator.plan import report, times

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cpufinetune_operator.model import Exit, Observed, PodView

# Node 0 knows more than the others (the result, the cause), and may need a moment longer to say it.
PATIENCE_SECONDS = 15.0
_FINAL = (names.EXIT_OK, names.EXIT_GAVE_UP, names.EXIT_BAD_INPUT, names.EXIT_DEADLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job ended; `report` is the last word on progress and result, where there is one."""

    type: Literal["Complete", "Failed"]
    reason: str
    message: str
    at: datetime | None = None
    report: Report | None = None


def recorded(status: Mapping[str, Any]) -> Ending | None:
    """The ending that the status states already: nothing that happens later changes it."""
    for condition in status.get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in {names.COMPLETE, names.FAILED}:
            at = times.parse(status.get("completionTime")) or times.parse(condition["lastTransitionTime"])
            return Ending(type=condition["type"], reason=condition["reason"], message=condition["message"], at=at)
    return None


def ending(observed: Observed) -> Ending | None:
    """How the job ended, by its pods and its last report; None if it has not."""
    first, *others = _by_node(observed) or (None,)
    spoken = last_word(first, observed.job.uid) if first else None
    if first and first.exit and spoken:
        return _by_report(spoken, first.exit.finished_at, observed)
    for node in (first, *others):
        refused = _refusal(node, observed.job.uid)
        if refused:
            return refused
    for other in others:
        word = last_word(other, observed.job.uid) if other else None
        if other and other.exit and word and _patience_is_over(other.exit, observed):
            return _by_report(_fuller(word, observed), other.exit.finished_at, observed)
    known = observed.report
    if isinstance(known, Report) and known.state == "Finished" and known.result and not (first and first.running):
        # Its pod is gone with its last words, but they were heard before.
        return _by_report(known, observed.now, observed)
    return None


def look_again(observed: Observed) -> float | None:
    """Seconds after which node 0 need not be waited for any more; None if nobody has had a last word."""
    spoke = any(last_word(pod, observed.job.uid) for pod in observed.pods)
    return PATIENCE_SECONDS + 1 if spoke else None


def last_word(pod: PodView, uid: str) -> Report | None:
    """What the pod's launcher left when the gang told it to finish; None if it did not, or not yet."""
    if pod.exit is None:
        return None
    word = report.read(pod.exit.message, uid)
    return word if word is not None and word.code in _FINAL else None


def _by_node(observed: Observed) -> list[PodView | None]:
    pods: dict[int, PodView | None] = {pod.index: pod for pod in observed.pods}
    return [pods.get(index) for index in range(max(pods, default=-1) + 1)]


def _refusal(pod: PodView | None, uid: str) -> Ending | None:
    """A pod that says that only a human can help, before there was a gang to agree on it."""
    if pod is None or last_word(pod, uid):
        return None
    for end, reason in ((pod.fetch_exit, names.REASON_FETCH), (pod.exit, names.REASON_BAD_INPUT)):
        if end and end.code == names.EXIT_BAD_INPUT:
            word = report.read(end.message, uid)
            cause = word.failure if word else None
            given, message = cause or (reason, report.last_line(end.message) or "no message was left")
            text = f"{pod.name}: {message}; correct it and create the job anew."
            return Ending(type="Failed", reason=given, message=text, at=end.finished_at, report=word)
    return None


def _patience_is_over(end: Exit, observed: Observed) -> bool:
    return end.finished_at is None or (observed.now - end.finished_at).total_seconds() > PATIENCE_SECONDS


def _fuller(word: Report, observed: Observed) -> Report:
    known = observed.report
    if isinstance(known, Report) and known.state == "Finished":
        return replace(known, code=word.code)
    return word


def _by_report(word: Report, at: datetime | None, observed: Observed) -> Ending:
    reason, message = word.failure or ("", "")
    if word.code in {names.EXIT_OK, None}:
        return Ending(
            type="Complete",
            reason=names.REASON_TRAINED,
            message=_where(word, observed),
            at=at,
            report=word,
        )
    if word.code == names.EXIT_GAVE_UP:
        cause = f", last of {reason}: {message}" if reason else ""
        text = f"Gave up after {word.restarts or 0} restarts{cause}. See status.ranks for what ended each rank."
        reason = names.REASON_BACKOFF
    elif word.code == names.EXIT_DEADLINE:
        text = "Not done within runPolicy.activeDeadlineSeconds; raise it or take more nodes, and create the job anew."
        reason = names.REASON_DEADLINE
    else:
        text = f"{message or 'no message was left'}; correct it and create the job anew."
        reason = reason or names.REASON_BAD_INPUT
    return Ending(type="Failed", reason=reason, message=text, at=at, report=word)


def _where(word: Report, observed: Observed) -> str:
    """Where the model is, for whoever comes to fetch it."""
    if observed.job.spec is None:
        return "Training is done."
    output, path = observed.job.spec.output, (word.result or {}).get("path", "")
    folder = f", folder {path}" if path else ""
    if output.claim:
        return f"Training is done; the model is in PersistentVolumeClaim {output.claim}{folder}."
    if output.volume:
        return f"Training is done; the model is in PersistentVolumeClaim {names.OUTPUT}-{observed.job.name}-0{folder}."
    return "Training is done; the model was not kept, because output is ephemeral."
