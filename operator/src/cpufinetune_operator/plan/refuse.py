"""Jobs that are not started as they are. Each refusal says what to change, and is looked at again on every change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune.job.quantity import to_bytes
from cpufinetune_operator.model import NotYet, Stalled
from cpufinetune_operator.plan import pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cpufinetune.job.document import Spec
    from cpufinetune_operator.model import Child, Observed
    from cpufinetune_operator.settings import Settings

RECHECK_SECONDS = 30.0
_SHARED = frozenset({"ReadWriteMany"})
_READABLE = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def check(observed: Observed, settings: Settings) -> None:
    """Refuse a job that cannot be started, or must not be.

    Raises:
        Stalled: a human must change something.
        NotYet: it will pass.
    """
    for child in observed.children.values():
        _check_ours(child, observed)
    if is_starting(observed):
        spec = observed.spec
        _check_local(spec)
        _check_image(spec, settings)
        _check_priority(spec)
        _check_memory(spec)
        _check_claims(spec, observed)


def is_starting(observed: Observed) -> bool:
    """Whether pods are about to be created. What already runs is not judged again."""
    owned = observed.set
    return owned is None or owned.replicas == 0


def claims(spec: Spec) -> tuple[str, ...]:
    """Claims that several pods would share, whose access modes therefore matter."""
    if spec.nodes == 1:
        return ()
    used = (spec.model.claim, spec.dataset.claim, spec.output.claim)
    return tuple(dict.fromkeys(name for name in used if name))


def _check_ours(child: Child, observed: Observed) -> None:
    name = observed.job.name
    if child.owner_uid == observed.job.uid:
        if child.deleting:
            raise NotYet("Deleting", f"Waiting for {child.kind} {name} to be gone, to create it anew.")
    elif child.owned_by_namesake:
        # The garbage collector is on its way: a job of this name was deleted a moment ago.
        text = f"Waiting for {child.kind} {name} of a deleted job of the same name to be gone."
        raise NotYet("Leftovers", text, RECHECK_SECONDS)
    else:
        raise name_conflict(child.kind, name)


def name_conflict(kind: str, name: str) -> Stalled:
    """An object of ours would have the name of somebody else's."""
    text = f"There is a {kind} {name} that is not this job's; delete it, or give the job another name."
    return Stalled("NameConflict", text)


def _check_local(spec: Spec) -> None:
    parts = (
        ("model", spec.model.path, spec.model.claim),
        ("dataset", spec.dataset.path, spec.dataset.claim),
        ("output", spec.output.path, spec.output.claim),
    )
    for name, path, claim in parts:
        if path and not claim:
            text = f"spec.{name}.path alone is a folder of somebody's machine; name the claim that holds it as well."
            raise Stalled("LocalPath", text)


def _check_image(spec: Spec, settings: Settings) -> None:
    image = spec.image
    if image and not any(pattern.fullmatch(image) for pattern in settings.allow_images):
        text = f"Image {image} is not on the operator's list; leave spec.image out, or have --allow-image match it."
        raise Stalled("ImageNotAllowed", text)


def _check_priority(spec: Spec) -> None:
    """Keep jobs from driving the cluster's own pods away: whoever may create a job need not be allowed to."""
    wanted = spec.placement.priority_class_name or ""
    if wanted.startswith("system-"):
        text = (
            f"Priority class {wanted} is for the cluster's own pods; name another in spec.placement.priorityClassName."
        )
        raise Stalled("PriorityNotAllowed", text)


def _check_memory(spec: Spec) -> None:
    memory = spec.node.memory or pod.DEFAULT_MEMORY
    if to_bytes(spec.node.shared_memory) >= to_bytes(memory):
        text = (
            f"node.sharedMemory {spec.node.shared_memory} is part of node.memory {memory} and leaves nothing of it; "
            "raise node.memory or lower node.sharedMemory."
        )
        raise Stalled("SharedMemoryTooLarge", text)


def _check_claims(spec: Spec, observed: Observed) -> None:
    for name in claims(spec):
        found = observed.answers.claims.get(name)
        if found is None:
            continue  # not looked up: the scheduler will say it if it is not there
        if found.modes is None:
            raise Stalled("ClaimMissing", f"There is no PersistentVolumeClaim {name}; create it or name another.")
        written = name == spec.output.claim
        if not _fits(found.modes, _SHARED if written else _READABLE):
            use = "write to" if written else "read"
            text = (
                f"{spec.nodes} nodes would {use} PersistentVolumeClaim {name}, which only one machine can mount "
                f"({', '.join(found.modes)}); use nodes: 1 or a claim with ReadWriteMany."
            )
            raise Stalled("ClaimNotShared", text)


def _fits(modes: Iterable[str], wanted: frozenset[str]) -> bool:
    return not wanted.isdisjoint(modes)
