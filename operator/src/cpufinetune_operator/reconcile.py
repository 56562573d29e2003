"""The life of a job, a look at a time: every look decides anew from all there is."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cpufinetune_operator import kinds, names
from cpufinetune_operator.kube import Gone
from cpufinetune_operator.model import NotYet, Stalled
from cpufinetune_operator.plan import conditions
from cpufinetune_operator.plan.decide import decide
from cpufinetune_operator.transport import Refused

if TYPE_CHECKING:
    from cpufinetune_operator.kube import Kube
    from cpufinetune_operator.metrics import Metrics
    from cpufinetune_operator.mirror import Mirror
    from cpufinetune_operator.model import Key, Manifest, Observed, Plan
    from cpufinetune_operator.observe import Observer
    from cpufinetune_operator.probe import Prober
    from cpufinetune_operator.settings import Settings

_LOGGER = logging.getLogger(__name__)
_BEFORE_PODS = ("Service", "NetworkPolicy")


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Looks at jobs and does what there is to do."""

    mirror: Mirror
    observer: Observer
    kube: Kube
    prober: Prober
    metrics: Metrics
    settings: Settings

    async def reconcile(self, key: Key) -> float | None:
        """Look at a job; return the seconds after which it wants another look, if it does."""
        with self.metrics.timed():
            observed = self.observer.observe(key)
            self.prober.aim(key, observed)
            if observed is None:
                return None
            hindrance: Stalled | NotYet | None = None
            try:
                observed = await self.observer.answer(observed)
                plan = decide(observed, self.settings)
                await self._apply(observed, plan)
            except (Stalled, NotYet) as found:
                hindrance = found
                if isinstance(found, NotYet) and observed.job.status.get("phase"):
                    raise  # it mostly passes by the next try, and a status that is there need not flicker
                observed = replace(observed, hindrance=found)
                plan = decide(observed, self.settings)
            try:
                await self._write_status(observed, plan)
            except Gone:
                return None
            if isinstance(hindrance, NotYet):
                raise hindrance
            await self._remove(observed, plan)
            return plan.requeue_after

    async def _apply(self, observed: Observed, plan: Plan) -> None:
        """Apply children, the pods last: they must not be there without the policy that guards them."""
        first = [manifest for manifest in plan.apply if manifest["kind"] in _BEFORE_PODS]
        rest = [manifest for manifest in plan.apply if manifest["kind"] not in _BEFORE_PODS]
        for together in (first, rest):
            done = await asyncio.gather(*(self._apply_one(observed, one) for one in together), return_exceptions=True)
            # A human has to see why before a retry has its turn.
            errors = sorted((one for one in done if isinstance(one, BaseException)), key=_is_not_yet)
            if errors:
                raise errors[0]

    async def _apply_one(self, observed: Observed, manifest: Manifest) -> None:
        found = await self.kube.apply(manifest, observed.children.get(manifest["kind"]))
        self.mirror.put(kinds.BY_NAME[manifest["kind"]], found)

    async def _write_status(self, observed: Observed, plan: Plan) -> None:
        if plan.status is None:
            return
        began = time.monotonic()
        found = await self.kube.write_status(observed.job, plan.status)
        self.mirror.put(kinds.JOB, found)
        self.metrics.moved(observed.job, plan.status)
        # Steps are written every few seconds, and are no news to whoever reads logs.
        level = logging.INFO if conditions.changed(observed.job.status, plan.status) else logging.DEBUG
        text, key = "%s/%s is %s", observed.job.key
        about = {"fields": _fields(observed, plan.status, time.monotonic() - began)}
        _LOGGER.log(level, text, *key, plan.status["phase"], extra=about)
        for note in plan.events:
            try:
                await self.kube.post(observed.job, note, observed.now)
            except (Refused, NotYet) as error:
                _LOGGER.warning("cannot post an event: %s", error)

    async def _remove(self, observed: Observed, plan: Plan) -> None:
        job = observed.job
        if plan.scale:
            found = await self.kube.scale(job, plan.scale)
            if found:
                self.mirror.put(kinds.STATEFUL_SET, found)
        for child in plan.delete:
            await self.kube.delete_child(job, child)
        if plan.delete_job:
            await self.kube.delete(kinds.JOB, job.namespace, job.name, job.uid)


def _is_not_yet(error: BaseException) -> bool:
    return isinstance(error, NotYet)


def _fields(observed: Observed, status: Manifest, seconds: float) -> Manifest:
    job = observed.job
    ready = conditions.find(status, names.READY)
    about = {"namespace": job.namespace, "name": job.name, "uid": job.uid}
    return {"job": about, "reason": ready["reason"], "detail": ready["message"], "writeSeconds": round(seconds, 4)}
