"""From what was heard and looked up to what a decision rests on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cpufinetune_operator.model import Answers, Claim, Observed
from cpufinetune_operator.plan import stall
from cpufinetune_operator.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from cpufinetune_operator.kube import Kube
    from cpufinetune_operator.mirror import Mirror
    from cpufinetune_operator.model import Key, Report, Unreachable

# Machines come and go slowly, and many jobs may wait for the same label.
LABEL_SECONDS = 60.0
# Of spec.nodes, as the CRD bounds it; a test compares.
MOST_NODES = 1024
# A claim's modes never change; one that is missing is looked for every time.
CLAIM_SECONDS = 30.0


@dataclass(slots=True)
class Observer:
    """Puts together what there is of a job."""

    mirror: Mirror
    kube: Kube
    clock: Callable[[], datetime]
    report: Callable[[Key, str], Report | Unreachable | None]
    polling: bool
    cluster_wide: bool
    _labels: Recent[bool | None] = field(default_factory=lambda: Recent(LABEL_SECONDS))
    _claims: Recent[tuple[str, ...] | None] = field(default_factory=lambda: Recent(CLAIM_SECONDS, bool))

    def observe(self, key: Key) -> Observed | None:
        """What is known of a job without asking anybody; None if there is no such job."""
        job = self.mirror.job(key)
        if job is None:
            return None
        found = Observed(
            now=self.clock(),
            job=job,
            children=self.mirror.children(key),
            report=self.report(key, job.uid),
            polling=self.polling,
        )
        owned = found.set
        pods = [pod for pod in self.mirror.pods(key) if owned and pod.owner_uid == owned.uid and pod.index >= 0]
        # Whoever may make pods may also claim to be the set's; its own have its name and a number that a job can have.
        own = (pod for pod in pods if pod.job_uid == job.uid and pod.name == f"{job.name}-{pod.index}")
        return replace(found, pods=tuple(pod for pod in own if pod.index < MOST_NODES))

    async def answer(self, observed: Observed) -> Observed:
        """The same, with what had to be looked up: nothing on the way from a new job to its pods."""
        asked = stall.questions(observed)
        if not (asked.claims or asked.events_of or asked.labels):
            return observed
        namespace = observed.job.namespace
        modes, warnings, known = await asyncio.gather(
            asyncio.gather(*(self._claim_modes(namespace, name) for name in asked.claims)),
            asyncio.gather(*(self.kube.warning(namespace, uid) for uid in asked.events_of)),
            asyncio.gather(*(self._has_machine(label) for label in asked.labels)),
        )
        claims = {name: Claim(name=name, modes=found) for name, found in zip(asked.claims, modes, strict=True)}
        said = {uid: text for uid, text in zip(asked.events_of, warnings, strict=True) if text}
        absent = tuple(label for label, there in zip(asked.labels, known, strict=True) if there is False)
        return replace(observed, answers=Answers(claims=claims, warnings=said, absent_labels=absent))

    async def _claim_modes(self, namespace: str, name: str) -> tuple[str, ...] | None:
        return await self._claims.get((namespace, name), lambda: self.kube.claim_modes(namespace, name))

    async def _has_machine(self, label: str) -> bool | None:
        if not self.cluster_wide:
            return None  # machines belong to no namespace, so its rules do not lead to them
        return await self._labels.get(label, lambda: self.kube.has_machine(label))
