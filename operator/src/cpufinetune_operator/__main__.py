"""`python -m cpufinetune_operator`: puts the parts together and runs them until told to stop, or until one ends."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from cpufinetune_operator import connect, health, kinds, logs, names, settings, views, watches
from cpufinetune_operator.kube import Kube
from cpufinetune_operator.metrics import Metrics
from cpufinetune_operator.mirror import Mirror
from cpufinetune_operator.model import NotYet
from cpufinetune_operator.observe import Observer
from cpufinetune_operator.probe import Prober
from cpufinetune_operator.queue import Queue
from cpufinetune_operator.reconcile import Reconciler
from cpufinetune_operator.resync import Resync
from cpufinetune_operator.transport import Refused, Transport

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from cpufinetune_operator.model import Key
    from cpufinetune_operator.settings import Settings

# An API server that is being replaced is back by then; after that the kubelet may start us anew.
PATIENCE_SECONDS = 60.0
EXIT_SECONDS = 8.0
_LOGGER = logging.getLogger("cpufinetune_operator")


class CannotStart(Exception):  # noqa: N818 - it names the finding
    """Something has to be put right before the operator can run."""


class Operator:
    """The parts and how they hang together."""

    def __init__(self, given: Settings, transport: Transport) -> None:
        self.settings = given
        self.mirror = Mirror()
        self.metrics = Metrics(self.mirror.jobs)
        self.kube = Kube(transport, self.metrics.wrote)
        self.queue: Queue[Key] = Queue(self._look, given.workers, self.metrics.failed)
        self.prober = Prober(given.poll_seconds if given.progress else None, self.queue.add, self.metrics.read)
        self.pulse = health.Pulse(watches.expected(given.namespaces))
        self.resync = Resync(self.mirror, self.kube, self.queue, given.namespaces, given.resync_seconds)
        wide = not given.namespaces
        observer = Observer(self.mirror, self.kube, _now, self.prober.latest, given.progress, wide)
        self.reconciler = Reconciler(self.mirror, observer, self.kube, self.prober, self.metrics, given)
        self.metrics.watch("queue_depth", "Jobs that wait for a look", lambda: len(self.queue))
        self.metrics.watch("queue_oldest_seconds", "How long the first of them has waited", self.queue.oldest)
        self.metrics.watch("watch_age_seconds", "Since the longest silent watch gave a sign of life", self._watch_age)

    async def run(self, stop: asyncio.Event) -> None:
        """Run all parts until told to stop; any that ends before takes all down."""
        kopf_stop = asyncio.Event()
        ages = lambda: (self._watch_age(), self.queue.oldest())  # noqa: E731 - it reads better than a method
        async with asyncio.TaskGroup() as group:
            ours = [
                group.create_task(_forever("queue", self.queue.run())),
                group.create_task(_forever("prober", self.prober.run())),
                group.create_task(_forever("resync", self.resync.run())),
                group.create_task(_forever("server", health.serve(self.settings.port, self.metrics.registry, ages))),
            ]
            registry = watches.registry(self.mirror, self.pulse, self.queue.add, self.resync.ask)
            watching = watches.run(registry, self.settings.namespaces, kopf_stop, lambda: _on_signals(stop))
            theirs = group.create_task(_forever("watches", watching, kopf_stop))
            await stop.wait()
            _LOGGER.info("told to stop")
            _leave_in_time(0)
            for task in ours:
                task.cancel()
            # kopf waits for every task that was made while it ran: ours go first.
            await asyncio.wait(ours)
            kopf_stop.set()
            await asyncio.wait([theirs])

    async def _look(self, key: Key) -> float | None:
        after = await self.reconciler.reconcile(key)
        if self.mirror.job(key) is None:
            self.metrics.forget(key)
        return after

    def _watch_age(self) -> float:
        return self.pulse.age(asyncio.get_running_loop().time())


async def _forever(name: str, work: Coroutine[object, object, None], stop: asyncio.Event | None = None) -> None:
    try:
        await work
        if stop is None or not stop.is_set():
            raise RuntimeError("it ended by itself")  # noqa: TRY301 - both ways of ending are alike
    except Exception:
        _LOGGER.exception("the %s failed: stopping", name)
        _leave_in_time(1)
        raise


def _leave_in_time(code: int) -> None:
    """End the process even if some part does not want to: nothing is lost that is not found again at the next start."""
    asyncio.get_running_loop().call_later(EXIT_SECONDS, os._exit, code)


def _on_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


async def _require_crd(kube: Kube, stop: asyncio.Event) -> None:
    """Wait for the API server, and see that it knows our objects; return early if told to stop.

    Raises:
        CannotStart: it does not, or does not answer.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not stop.is_set():
        try:
            if await kube.serves_jobs():
                return
        except Refused as error:
            raise CannotStart(f"the API server refuses this operator: {error}") from error
        except NotYet as error:
            if asyncio.get_running_loop().time() > deadline:
                raise CannotStart(str(error)) from error
            _LOGGER.warning("%s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1.0)
        else:
            crd = f"{names.PLURAL}.{names.GROUP}"
            raise CannotStart(
                f"the cluster does not know {names.API_VERSION} {names.KIND}; apply the CustomResourceDefinition {crd} "
                "(manifests/crd) and start the operator again"
            )


async def serve(given: Settings) -> None:
    """Run the operator until SIGTERM.

    Raises:
        CannotStart: something has to be put right first.
    """
    stop = asyncio.Event()
    _on_signals(stop)
    # Each look applies two children at a time; the rest is for lists and lookups.
    transport = Transport(connect.configuration(), threads=2 * given.workers + len(kinds.WATCHED))
    try:
        operator = Operator(given, transport)
        views.warm_up()
        await _require_crd(operator.kube, stop)
        await operator.run(stop)
    finally:
        transport.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator; return its exit code."""
    given = settings.parse(sys.argv[1:] if arguments is None else arguments)
    logs.configure(given.log_format)
    try:
        asyncio.run(serve(given))
    except (CannotStart, connect.NoCluster) as error:
        _LOGGER.error("cannot start: %s", error)  # noqa: TRY400 - its trace tells nobody anything
        return 1
    except ExceptionGroup:  # whose parts were logged when they failed
        _LOGGER.error("stopped because of an error")  # noqa: TRY400 - see above
        return 1
    _LOGGER.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
