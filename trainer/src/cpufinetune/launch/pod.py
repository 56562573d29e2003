"""The launcher of a pod, its PID 1: it finds out which node it is, lives that node's life, and parks once all is over.

The container of a StatefulSet's pod is always started again: what has ended for good leaves a marker for its next life.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from cpufinetune.errors import AttemptError, CpuFineTuneError, ExitCode, JobError
from cpufinetune.job.load import load
from cpufinetune.job.problems import InvalidJob
from cpufinetune.launch.assembly import make_template, name_process
from cpufinetune.launch.follow import follow
from cpufinetune.launch.lead import lead
from cpufinetune.launch.park import ENDING, park
from cpufinetune.launch.standing import failed_early
from cpufinetune.launch.termination import SCHEMA, Ending, fit, publish, read_marker, write_message
from cpufinetune.report.console import PlainConsole
from cpufinetune.world.dns import read_zone
from cpufinetune.world.identity import Identity, identify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cpufinetune.job.document import Job
    from cpufinetune.launch.places import Places
    from cpufinetune.train.settings import RankSettings

PROGRESS_SECONDS = 10.0
HUSH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod knows of itself and its peers."""

    places: Places
    identity: Identity
    job: Job
    hosts: tuple[str, ...]

    @property
    def uid(self) -> str:
        """The job's; also what keeps pods of an earlier job of this name out of the gang."""
        return self.job.uid or ""

    def template(self, output: Path) -> RankSettings:
        """Write the document for the ranks and return what they share.

        Raises:
            JobError: model or data are on no volume, or were not fetched.
            AttemptError: the scratch folder cannot be written.
        """
        try:
            return make_template(
                self.places.fetched(self.job),
                model_root=self.places.model(self.job),
                data_root=self.places.data(self.job),
                scratch=self.places.scratch,
                output=output,
            )
        except OSError as error:
            raise AttemptError("ScratchNotWritable", f"{self.places.scratch}: {error}") from error

    def hush(self, say: Callable[[str], None], seconds: float = HUSH_SECONDS) -> Callable[[str], None]:
        """Return what says a line now and then only: for what is tried again and again."""
        said = -seconds

        def seldom(text: str) -> None:
            nonlocal said
            now = time.monotonic()
            if now - said >= seconds:
                said = now
                say(text)

        return seldom


def run(places: Places) -> ExitCode:
    """Be the launcher of this pod; return the container's exit code."""
    console = PlainConsole(sys.stdout, clock=time.monotonic, every_seconds=PROGRESS_SECONDS)

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            console.note(text)

    # PID 1 has no default action: what came before there is a handler would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    last_word = read_marker(places.marker)
    if last_word is not None:
        if last_word:
            write_message(places.termination_message, fit(last_word))
        say("this pod has ended already: waiting to be removed")
        park()
        return ExitCode.OK
    for number in ENDING:
        signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    ending = _live(places, console, say)
    for warning in publish(ending, places.termination_message, places.marker):
        say(warning)
    return ending.code


def _leave(number: int, frame: object) -> NoReturn:
    """End at once, as long as nothing runs that would need more."""
    del number, frame
    sys.exit(int(ExitCode.INTERRUPTED))


def _live(places: Places, console: PlainConsole, say: Callable[[str], None]) -> Ending:
    """Live the life of this pod's node; whatever it fails with becomes an ending."""
    known = _Known()
    try:
        return _live_as(known, places, console, say)
    except (InvalidJob, CpuFineTuneError) as error:
        say(f"error: {error}")
        return known.ending(ExitCode.BAD_INPUT if isinstance(error, InvalidJob | JobError) else ExitCode.RETRY, error)
    except Exception as error:  # noqa: BLE001 - a bug: the next life may do better
        say(traceback.format_exc())
        return known.ending(ExitCode.RETRY, error)


@dataclass(slots=True)
class _Known:
    """What an ending can say before there is a gang."""

    node: int = 0
    uid: str = ""

    def ending(self, code: ExitCode, failure: Exception | None = None) -> Ending:
        if self.node == 0 and failure is not None:
            return Ending(code, failed_early(self.uid, code, failure))
        return Ending(code, {"schema": SCHEMA, "uid": self.uid, "code": int(code), "node": self.node})


def _live_as(known: _Known, places: Places, console: PlainConsole, say: Callable[[str], None]) -> Ending:
    identity = identify(places.host_name)
    known.node = identity.node
    name_process(f"node-{identity.node}")
    job = load(places.job, rules=False)
    known.uid = job.uid or ""
    zone = read_zone(places.resolv_conf.read_text(encoding="utf-8"))
    pod = Pod(places, identity, job, zone.peers(identity.set_name, job.spec.nodes))
    return lead(pod, console) if identity.coordinates else known.ending(follow(pod, say))
