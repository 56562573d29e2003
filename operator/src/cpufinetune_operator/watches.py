"""kopf's part: it watches, and tells the mirror and the queue. It decides nothing and writes nothing.

Only indices and raw events: these leave no finalizer and no annotation on anybody's object. The indices hold nothing
themselves; they are there because kopf calls event handlers only after everything that exists was indexed once, and so
nothing is decided by half of a picture.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kopf

from cpufinetune_operator import connect, kinds, names
from cpufinetune_operator.stateless import NoDiffBase, NoProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cpufinetune_operator.health import Pulse
    from cpufinetune_operator.kinds import Kind
    from cpufinetune_operator.mirror import Mirror
    from cpufinetune_operator.model import Key

EXIT_SECONDS = 20.0  # then kopf kills the process; our own patience ends before


def settings() -> kopf.OperatorSettings:
    """Kopf's settings: one replica, nothing posted, nothing scanned, watches that cannot fall silent."""
    found = kopf.OperatorSettings()
    found.peering.standalone = True
    found.scanning.disabled = True
    found.posting.enabled = False
    found.persistence.diffbase_storage = NoDiffBase()
    found.persistence.progress_storage = NoProgress()
    found.execution.max_workers = 1  # every handler is async
    found.process.ultimate_exiting_timeout = EXIT_SECONDS
    found.networking.connect_timeout = 10
    found.networking.request_timeout = 60
    found.watching.connect_timeout = 10
    found.watching.server_timeout = 300
    found.watching.client_timeout = 330
    found.watching.chunk_size = 500
    for kind in kinds.WATCHED:
        if kind.selector:
            found.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector
    return found


def expected(namespaces: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of all watches."""
    return tuple(kind.path(namespace) for kind in kinds.WATCHED for namespace in namespaces or (None,))


def registry(
    mirror: Mirror, pulse: Pulse, changed: Callable[[Key], None], relisted: Callable[[Kind], None]
) -> kopf.OperatorRegistry:
    """The handlers.

    Args:
        mirror: takes in what is heard.
        pulse: takes note of signs of life.
        changed: told the job that an event concerns.
        relisted: told a kind whose watch began anew, so that deletions may have been missed.
    """
    found = kopf.OperatorRegistry()

    def now() -> float:
        return asyncio.get_running_loop().time()

    @kopf.on.login(registry=found)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return connect.session(lambda path: pulse.beat(path, now()))

    for kind in kinds.WATCHED:
        ears = _Ears(kind, mirror, lambda path: pulse.beat(path, now()), changed, relisted)
        where = (kind.group, kind.version, kind.plural)
        kopf.index(*where, registry=found, id=f"mirror-{kind.plural}")(ears.mirror_object)
        kopf.on.event(*where, registry=found, id=f"notice-{kind.plural}")(ears.notice)
    return found


@dataclass(slots=True)
class _Ears:
    """The handlers of a kind. kopf calls both for an object, in this order, and for one event after another."""

    kind: Kind
    mirror: Mirror
    beat: Callable[[str], None]
    changed: Callable[[Key], None]
    relisted: Callable[[Kind], None]
    _news: dict[str, Key] = field(default_factory=dict)
    _noticed: set[str] = field(default_factory=set)

    async def mirror_object(self, body: kopf.Body, **_: Any) -> None:
        """Take in an object. The echo of our own write is no news."""
        key = self.mirror.put(self.kind, body)
        if key is not None:
            self._news[body["metadata"]["uid"]] = key

    async def notice(self, event: Mapping[str, Any], **_: Any) -> None:
        """Tell which job an event concerns."""
        metadata = event["object"]["metadata"]
        uid = metadata["uid"]
        self.beat(self.kind.path(metadata["namespace"]))
        self.beat(self.kind.path(None))
        key = self._news.pop(uid, None)
        if event["type"] == "DELETED":
            self._noticed.discard(uid)
            key = self.mirror.drop(uid, metadata.get("resourceVersion", ""))
        elif event["type"] is None and uid in self._noticed:
            self.relisted(self.kind)
        else:
            self._noticed.add(uid)
        if key is not None:
            self.changed(key)


async def run(
    found: kopf.OperatorRegistry, namespaces: tuple[str, ...], stop: asyncio.Event, spawned: Callable[[], None]
) -> None:
    """Watch until told to stop; return early or fail if a watch does.

    `spawned` is called once kopf has taken the signal handlers for itself.
    """
    existing = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=found,
        settings=settings(),
        # Left out, kopf looks for the user's name, which an image need not have.
        identity=names.COMPONENT,  # type: ignore[arg-type] # a NewType that kopf keeps to itself
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )
    spawned()
    running = asyncio.create_task(kopf.run_tasks(tasks, ignored=existing), name="kopf")
    # kopf tells of a failed watch only once all others have ended, which then may take for ever.
    done, _ = await asyncio.wait({running, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await running
    else:
        await next(iter(done))
