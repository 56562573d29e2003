"""How far the job is: one word for people, and what the conditions say of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cpufinetune_operator import names
from cpufinetune_operator.model import Stalled, Unreachable
from cpufinetune_operator.plan import conditions, objects, pod, stall

if TYPE_CHECKING:
    from cpufinetune_operator.model import NotYet, Observed
    from cpufinetune_operator.plan.completion import Ending
    from cpufinetune_operator.plan.conditions import Truth
    from cpufinetune_operator.plan.restart import Tally

# A launcher needs a moment until it serves its report.
REPORT_PATIENCE_SECONDS = 30.0
_LATER = " The changed spec takes effect after the next suspend and resume (runPolicy.suspend)."
_GOES_ON = "Training goes on from the last checkpoint."
_RAN = (names.PHASE_STARTING, names.PHASE_RUNNING, names.PHASE_RESTARTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far the job is.

    Attributes:
        ready: whether it trains or is done.
        moving: something is on the way (Reconciling).
        stuck: a human is needed (Stalled).
    """

    phase: str
    ready: Truth
    reason: str
    message: str
    moving: bool = False
    stuck: bool = False


def ended(ending: Ending) -> Stage:
    """The stage of a job that has ended. A failed one is stalled as well: nothing more will happen by itself."""
    well = ending.type == names.COMPLETE
    return Stage(
        phase=names.PHASE_SUCCEEDED if well else names.PHASE_FAILED,
        ready="True" if well else "False",
        reason=ending.reason,
        message=ending.message,
        stuck=not well,
    )


def hindered(observed: Observed, hindrance: Stalled | NotYet) -> Stage:
    """The stage of a job that cannot be started as it is, or not yet; or that runs and lacks something."""
    stuck = isinstance(hindrance, Stalled)
    runs = observed.set is not None and observed.set.replicas > 0
    return Stage(
        phase=observed.job.status.get("phase", names.PHASE_PENDING) if runs else names.PHASE_PENDING,
        ready="False",
        reason=hindrance.reason,
        message=hindrance.message,
        moving=not stuck,
        stuck=stuck,
    )


def suspended(observed: Observed) -> Stage:
    """The stage of a job that shall pause."""
    owned = observed.set
    stopping = bool(observed.pods) or (owned is not None and owned.replicas > 0)
    if stopping:
        message = "The pods write a checkpoint and go."
    elif observed.spec.output.ephemeral and observed.job.status.get("attempt"):
        message = "Set runPolicy.suspend to false to begin anew: output is ephemeral, so no checkpoint was kept."
    else:
        message = "Set runPolicy.suspend to false to go on."
    return Stage(
        phase=names.PHASE_SUSPENDED,
        ready="False",
        reason="Suspending" if stopping else "Suspended",
        message=message,
        moving=stopping,
    )


def active(observed: Observed, count: Tally) -> Stage:
    """The stage of a job whose pods are there, or on their way."""
    wanted = observed.set.replicas if observed.set and observed.set.replicas else observed.spec.nodes
    running = [one for one in observed.pods if one.running and not one.deleting]
    stage = _running(observed, count) if len(running) >= wanted else _waiting(observed, wanted, count)
    message = stage.message.removesuffix(_LATER)
    return replace(stage, message=message + _LATER if _is_outdated(observed) else message)


def look_again(observed: Observed) -> float | None:
    """Seconds after which a report that cannot be read is no longer one that is not served yet."""
    first = next((one for one in observed.pods if one.index == 0 and one.running_since), None)
    if not isinstance(observed.report, Unreachable) or first is None or first.running_since is None:
        return None
    left = REPORT_PATIENCE_SECONDS - (observed.now - first.running_since).total_seconds()
    return left + 1 if left > 0 else None


def _waiting(observed: Observed, wanted: int, count: Tally) -> Stage:
    ran = observed.job.status.get("phase") in _RAN or any(one.restart_count for one in observed.pods)
    phase = names.PHASE_RESTARTING if ran else names.PHASE_PENDING
    diagnosis = stall.diagnose(observed)
    if diagnosis:
        reason, message = diagnosis.reason, diagnosis.message
        return Stage(
            phase=phase,
            ready="False",
            reason=reason,
            message=message,
            moving=not diagnosis.stuck,
            stuck=diagnosis.stuck,
        )
    if ran:
        message = _cause(observed, count) or f"A pod is being replaced. {_GOES_ON}"
        return Stage(phase=phase, ready="False", reason="PodRestarting", message=message, moving=True)
    # No count of pods that run: it would change, and be written, pod by pod.
    message = f"Waiting for {wanted} {'pod' if wanted == 1 else 'pods'} to run."
    return Stage(phase=phase, ready="False", reason="PodsPending", message=message, moving=True)


def _running(observed: Observed, count: Tally) -> Stage:
    said = observed.report
    if not observed.polling:
        return _ready("PodsRunning", "All pods run.")
    if isinstance(said, Unreachable):
        return _unread(observed, said)
    if said is None and observed.job.status.get("phase") in _RAN:
        return _as_written(observed)
    if said is None or (said.state == "Preparing" and not said.progress.get("step")):
        return _preparing()
    if said.state in {"Restarting", "Preparing"}:
        message = _cause(observed, count) or f"An attempt failed. {_GOES_ON}"
        phase = names.PHASE_RESTARTING
        return Stage(phase=phase, ready="False", reason="Restarting", message=message, moving=True)
    return _ready("Training", "Training.")


def _as_written(observed: Observed) -> Stage:
    """The stage that the status states, until somebody knows better: after a restart of the operator, nobody does."""
    status = observed.job.status
    ready = conditions.find(status, names.READY)
    return Stage(
        phase=status["phase"],
        ready=ready["status"],
        reason=ready["reason"],
        message=ready["message"],
        moving=bool(conditions.find(status, names.RECONCILING)),
        stuck=bool(conditions.find(status, names.STALLED)),
    )


def _preparing() -> Stage:
    text = "All pods run and prepare data, model and process group."
    return Stage(phase=names.PHASE_STARTING, ready="False", reason="Preparing", message=text, moving=True)


def _ready(reason: str, message: str) -> Stage:
    return Stage(phase=names.PHASE_RUNNING, ready="True", reason=reason, message=message)


def _unread(observed: Observed, said: Unreachable) -> Stage:
    if look_again(observed) is not None:
        return _preparing()
    text = (
        f"All pods run, but their report cannot be read ({said.why}); let the operator reach port "
        f"{names.PORT_REPORT} of {observed.job.name}-0. The job's end will be noticed all the same."
    )
    return Stage(phase=names.PHASE_RUNNING, ready="Unknown", reason="ReportUnreachable", message=text)


def _cause(observed: Observed, count: Tally) -> str:
    """Why an attempt ended; empty if nobody knows."""
    lost = [one for one in observed.pods if one.disruption]
    if lost:
        return f"The cluster takes {lost[0].name} away ({lost[0].disruption}). {_GOES_ON}"
    return f"Restart {count.restarts}: {count.cause}. {_GOES_ON}" if count.cause else ""


def _is_outdated(observed: Observed) -> bool:
    """Whether running pods were made from another document than the job's."""
    owned = observed.set
    if owned is None or not owned.replicas:
        return False
    different = owned.document != objects.digest(pod.document(observed.job))
    return different or owned.replicas != observed.spec.nodes
