"""What keeps pods from running, in words that say what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cpufinetune_operator.model import Questions
from cpufinetune_operator.plan import completion, placement, refuse, report, times

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from cpufinetune_operator.model import Observed, PodView, Waiting

# Every pod passes through states that look like trouble for a moment.
PATIENCE_SECONDS = 2.0
MOUNT_PATIENCE_SECONDS = 10.0
RECHECK_SECONDS = 20.0
_MOST_PODS = 3

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"}
_HOPELESS_IMAGE = {"InvalidImageName", "ErrImageNeverPull"}
_CREATING = {"ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why pods do not run. `stuck` means that nothing but a human can help."""

    reason: str
    message: str
    stuck: bool = False


def diagnose(observed: Observed) -> Diagnosis | None:
    """The first thing that holds pods up, the hardest first; None if nothing is known to."""
    found = sorted(_all(observed), key=lambda one: not one.stuck)
    return found[0] if found else None


def questions(observed: Observed) -> Questions:
    """What to look up to tell why pods do not run or must not be created; nothing on the way to a job's first pod."""
    job = observed.job
    if job.spec is None or job.deleting or job.spec.run_policy.suspend or completion.recorded(job.status):
        return Questions()
    if refuse.is_starting(observed):
        return Questions(claims=refuse.claims(job.spec))
    waiting = tuple(pod.uid for pod in observed.pods if _waits_for_mounts(pod, observed.now))
    missing = (observed.set.uid,) if observed.set and _is_missing_pods(observed) else ()
    labels: tuple[str, ...] = ()
    if any(pod.unscheduled and "affinity/selector" in pod.unscheduled for pod in observed.pods):
        wanted = placement.required_labels(job.spec.placement)
        labels = tuple(f"{key}={value}" for key, value in wanted.items())
    return Questions(events_of=(*missing, *waiting[:_MOST_PODS]), labels=labels)


def recheck(observed: Observed) -> float | None:
    """Seconds after which to look again though nothing happened; None if all pods run."""
    owned = observed.set
    if owned is None:
        return PATIENCE_SECONDS + 1
    if owned.replicas == 0 or sum(pod.running for pod in observed.pods) >= owned.replicas:
        return None
    young = _age(times.parse(observed.job.status.get("startTime")), observed.now) <= MOUNT_PATIENCE_SECONDS
    return PATIENCE_SECONDS + 1 if young else RECHECK_SECONDS


def _all(observed: Observed) -> Iterator[Diagnosis]:
    if _is_missing_pods(observed) and observed.set:
        warning = observed.answers.warnings.get(observed.set.uid)
        if warning:
            yield _refused_pods(warning)
    for pod in observed.pods:
        yield from _of_pod(pod, observed)


def _is_missing_pods(observed: Observed) -> bool:
    owned = observed.set
    if owned is None or len(observed.pods) >= owned.replicas:
        return False
    return _age(times.parse(observed.job.status.get("startTime")), observed.now) > PATIENCE_SECONDS


def _refused_pods(warning: str) -> Diagnosis:
    said = report.sentence(warning)
    if "exceeded quota" in said:
        return Diagnosis(
            reason="QuotaExceeded",
            message=f"The namespace's quota leaves no room for all pods, which start when it does: {said}",
        )
    if "PodSecurity" in said:
        return Diagnosis(
            reason="PodSecurity",
            message=f"The namespace's Pod Security level refuses the pods; restricted is enough for them: {said}",
            stuck=True,
        )
    return Diagnosis(reason="PodsRefused", message=f"The API server refuses the pods: {said}", stuck=True)


def _of_pod(pod: PodView, observed: Observed) -> Iterator[Diagnosis]:
    if _age(pod.created, observed.now) <= PATIENCE_SECONDS or pod.deleting:
        return
    if pod.unscheduled is not None:
        yield _unscheduled(pod, pod.unscheduled, observed)
    warning = observed.answers.warnings.get(pod.uid)
    for waiting in pod.waiting:
        yield from _waits(pod, waiting, warning)
    if pod.fetch_exit and not pod.running:
        word = report.read(pod.fetch_exit.message, observed.job.uid)
        said = (
            word.failure[1] if word and word.failure else report.last_line(pod.fetch_exit.message) or "no reason given"
        )
        yield Diagnosis(
            reason="FetchFailing",
            message=f"{pod.name} cannot fetch model or data from the hub, and tries again: {said}",
        )


def _unscheduled(pod: PodView, words: str, observed: Observed) -> Diagnosis:
    said = report.sentence(words)
    if "persistentvolumeclaim" in said and "not found" in said:
        return Diagnosis(
            reason="ClaimMissing",
            message=f"{pod.name} waits for a claim; create it: {said}",
            stuck=True,
        )
    absent = observed.answers.absent_labels
    if absent and "affinity/selector" in said:
        text = (
            f"No machine has the label {', '.join(absent)}; install node-feature-discovery, which sets the labels of "
            f"CPUs, or ask for less in spec.placement (cpu: Any takes every CPU). The scheduler: {said}"
        )
        return Diagnosis(reason="LabelMissing", message=text)
    advice = _advice(said, observed)
    return Diagnosis(reason="Unschedulable", message=f"{pod.name} fits on no machine; {advice}. The scheduler: {said}")


def _advice(said: str, observed: Observed) -> str:
    """What to do about the scheduler's words; taints come last, for there are always machines that are not for jobs."""
    advice = []
    if "affinity/selector" in said:
        advice.append("ask for less in spec.placement, or add machines with these labels: " + _labels(observed))
    if "Insufficient" in said or ("taint" not in said and not advice):
        advice.append("lower nodes, node.cpu or node.memory, or add machines")
    return "; or ".join(advice) or "add spec.placement.tolerations for the taints, or add machines"


def _labels(observed: Observed) -> str:
    wanted = placement.required_labels(observed.spec.placement)
    return ", ".join(f"{key}={value}" for key, value in wanted.items()) or "none"


def _waits(pod: PodView, waiting: Waiting, warning: str | None) -> Iterator[Diagnosis]:
    said = report.sentence(waiting.message or waiting.reason)
    if waiting.reason in _IMAGE | _HOPELESS_IMAGE:
        yield Diagnosis(
            reason="ImagePull",
            message=f"{pod.name} cannot get its image; check its name and the registry: {said}",
            stuck=waiting.reason in _HOPELESS_IMAGE,
        )
    elif waiting.reason in {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}:
        yield Diagnosis(reason="ContainerRefused", message=f"{pod.name} cannot be started: {said}", stuck=True)
    elif waiting.reason in _CREATING and warning:
        yield _mount(pod, report.sentence(warning))


def _mount(pod: PodView, said: str) -> Diagnosis:
    if "secret" in said.lower() and "not found" in said:
        return Diagnosis(
            reason="SecretMissing",
            message=f"{pod.name} waits for the Secret of spec.hubTokenSecret; create it with key token: {said}",
            stuck=True,
        )
    return Diagnosis(reason="VolumeNotReady", message=f"{pod.name} waits for a volume: {said}")


def _waits_for_mounts(pod: PodView, now: datetime) -> bool:
    creating = any(one.reason in _CREATING for one in pod.waiting)
    return creating and not pod.deleting and _age(pod.created, now) > MOUNT_PATIENCE_SECONDS


def _age(since: datetime | None, now: datetime) -> float:
    return (now - since).total_seconds() if since else 0.0
