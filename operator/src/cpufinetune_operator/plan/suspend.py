"""Jobs that are told to pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune_operator.model import NotYet, Scale

if TYPE_CHECKING:
    from cpufinetune_operator.model import Observed


RECHECK_SECONDS = 5.0


def wanted(observed: Observed) -> bool:
    """Whether the job shall pause."""
    spec = observed.job.spec
    return spec is not None and spec.run_policy.suspend


def look_again(observed: Observed) -> float | None:
    """Seconds after which to look whether all pods are gone, should nobody tell; None once they are."""
    owned = observed.set
    return RECHECK_SECONDS if observed.pods or (owned is not None and owned.replicas) else None


def scale(observed: Observed) -> Scale | None:
    """Down to nothing; each launcher writes a checkpoint when its pod is told to go."""
    owned = observed.set
    return Scale(uid=owned.uid, replicas=0) if owned is not None and owned.replicas else None


def require_quiet(observed: Observed) -> None:
    """Hold a resume back until the pods of before are gone: old and new ones would form a gang of unlike members.

    Raises:
        NotYet: some are still there.
    """
    owned = observed.set
    if owned is not None and owned.replicas == 0 and observed.pods:
        text = f"Waiting for {len(observed.pods)} pods of before to write their checkpoint and go."
        raise NotYet("Stopping", text)
