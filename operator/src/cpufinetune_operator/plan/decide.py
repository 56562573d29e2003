"""From everything observed to everything to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune_operator import names
from cpufinetune_operator.model import NotYet, Plan, Stalled
from cpufinetune_operator.plan import (
    cleanup,
    completion,
    deadline,
    notes,
    objects,
    refuse,
    restart,
    stage,
    stall,
    status,
    suspend,
    ttl,
)

if TYPE_CHECKING:
    from cpufinetune_operator.model import Child, Manifest, Observed
    from cpufinetune_operator.plan.completion import Ending
    from cpufinetune_operator.settings import Settings


def decide(observed: Observed, settings: Settings) -> Plan:
    """Decide what to do about a job.

    A job that has ended takes the first way and no other: from then on nothing is ever created or scaled up.
    """
    if observed.job.deleting:
        return Plan()
    known = completion.recorded(observed.job.status)
    if known:
        return _ended(observed, known, known=True)
    ending = completion.ending(observed) or _enforced(observed)
    if ending:
        return _ended(observed, ending, known=False)
    if suspend.wanted(observed):
        return _suspended(observed)
    return _active(observed, settings)


def _enforced(observed: Observed) -> Ending | None:
    return restart.exceeded(observed, restart.tally(observed)) or deadline.exceeded(observed)


def _ended(observed: Observed, ending: Ending, *, known: bool) -> Plan:
    old = observed.job.status
    count = restart.recorded(old) if known else restart.tally(observed, ending)
    new = status.build(observed, stage.ended(ending), count, ending=ending)
    left = ttl.remaining(observed, ending)
    # Written first, deleted at the next look: a watcher gets to see how the job ended.
    expired = known and left is not None and left <= 0
    return Plan(
        status=new if status.differs(new, old) else None,
        events=() if known else notes.notes(old, new, count),
        scale=cleanup.scale(observed, ending),
        delete_job=expired,
        requeue_after=None if left is None or expired else max(left, 0.0),
    )


def _suspended(observed: Observed) -> Plan:
    old, count = observed.job.status, restart.tally(observed)
    new = status.build(observed, stage.suspended(observed), count)
    return Plan(
        status=new if status.differs(new, old) else None,
        events=notes.notes(old, new, count),
        scale=suspend.scale(observed),
        requeue_after=suspend.look_again(observed),
    )


def _active(observed: Observed, settings: Settings) -> Plan:
    old, count = observed.job.status, restart.tally(observed)
    apply: tuple[Manifest, ...] = ()
    delete: tuple[Child, ...] = ()
    looks = [deadline.remaining(observed), completion.look_again(observed), stage.look_again(observed)]
    try:
        if observed.hindrance:
            raise observed.hindrance
        refuse.check(observed, settings)
        suspend.require_quiet(observed)
        apply, delete = _changes(observed, settings)
        now = stage.active(observed, count)
        looks.append(stall.recheck(observed))
    except (Stalled, NotYet) as hindrance:
        now = stage.hindered(observed, hindrance)
        looks.append(hindrance.retry_after if isinstance(hindrance, NotYet) else refuse.RECHECK_SECONDS)
    started = bool(apply) or (observed.set is not None and observed.set.replicas > 0)
    new = status.build(observed, now, count, started=started)
    return Plan(
        apply=apply,
        status=new if status.differs(new, old) else None,
        events=notes.notes(old, new, count),
        delete=delete,
        requeue_after=min((look for look in looks if look is not None), default=None),
    )


def _changes(observed: Observed, settings: Settings) -> tuple[tuple[Manifest, ...], tuple[Child, ...]]:
    """Children to apply and to delete."""
    job, spec = observed.job, observed.spec
    wanted = [objects.service(job), objects.network_policy(job, spec, settings)]
    apply = [manifest for manifest in wanted if _is_stale(observed.children.get(manifest["kind"]), manifest)]
    owned, pods = observed.set, objects.stateful_set(job, spec, settings)
    if owned is not None and owned.replicas:
        if owned.replicas != spec.nodes and not _is_stale(owned, pods):
            # Somebody else scaled it: the document, which names the nodes, is the same.
            return (*apply, pods), ()
        # A gang is of one make: what changes meanwhile waits for the next resume.
        return tuple(apply), ()
    if owned is not None and owned.shape != pods["metadata"]["annotations"][names.ANNOTATION_SHAPE]:
        # The API server lets nobody change this part, and no pod is left that would miss the set.
        return tuple(apply), (owned,)
    return (*apply, pods), ()


def _is_stale(child: Child | None, manifest: Manifest) -> bool:
    return child is None or child.hash != manifest["metadata"]["annotations"][names.ANNOTATION_HASH]
