"""What becomes of the pods of a job that has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune_operator.model import Scale
from cpufinetune_operator.plan import completion

if TYPE_CHECKING:
    from cpufinetune_operator.model import Observed
    from cpufinetune_operator.plan.completion import Ending


def scale(observed: Observed, ending: Ending) -> Scale | None:
    """Down to nothing if the pods shall go; None if there is nothing to do."""
    owned = observed.set
    if owned is None or owned.replicas == 0 or owned.deleting or _stays(observed, ending):
        return None
    return Scale(uid=owned.uid, replicas=0)


def _stays(observed: Observed, ending: Ending) -> bool:
    spec = observed.job.spec
    policy = spec.run_policy.clean_pods if spec else "Always"
    kept = policy == "Never" or (policy == "OnSuccess" and ending.type == "Failed")
    # Pods are kept for a look, never to go on training: without node 0's last word they might.
    return kept and any(pod.index == 0 and completion.last_word(pod, observed.job.uid) for pod in observed.pods)
