"""What the operator sees and what it decides, as plain data.

Deciding raises two errors:

Stalled     a human must change something; it heals by itself once they did
NotYet      it will pass; look again after `retry_after` seconds
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from cpufinetune.job.document import Spec

Key = tuple[str, str]  # namespace and name of a job
Manifest = dict[str, Any]
ChildKind = Literal["Service", "NetworkPolicy", "StatefulSet"]


class Stalled(Exception):  # noqa: N818 - it names the job's state
    """A human must change something."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class NotYet(Exception):  # noqa: N818 - it names the job's state
    """Something is on the way, or out of reach for the moment."""

    def __init__(self, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a container ended. `message` is its termination message: a launcher's JSON, or the end of its log."""

    code: int
    reason: str
    message: str
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What a container waits for, in the kubelet's words."""

    container: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod of a job.

    Attributes:
        index: number of the node that it is.
        owner_uid: the object that controls it.
        running: its trainer container runs.
        running_since: since when.
        restart_count: times that its trainer container was started again.
        unscheduled: the scheduler's words on why it is on no machine; None if it is on one or was not tried.
        exit: how its trainer container ended last.
        fetch_exit: how its `fetch` container ended last, if not well.
        disruption: why the cluster takes it away (eviction, preemption, a lost machine), if it does.
    """

    name: str
    uid: str
    index: int
    job_uid: str
    owner_uid: str
    created: datetime | None = None
    deleting: bool = False
    node: str = ""
    ip: str = ""
    running: bool = False
    running_since: datetime | None = None
    restart_count: int = 0
    unscheduled: str | None = None
    waiting: tuple[Waiting, ...] = ()
    exit: Exit | None = None
    fetch_exit: Exit | None = None
    disruption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """An object of a job's name: what is needed to tell whether it is ours and up to date."""

    kind: ChildKind
    name: str
    uid: str
    owner_uid: str = ""
    owned_by_namesake: bool = False
    hash: str = ""
    shape: str = ""
    document: str = ""
    replicas: int = 0
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A `CpuFineTune` object.

    Attributes:
        document: the raw `spec`.
        spec: the same, typed; None if this version cannot read it.
        invalid: why not.
        status: what the API server holds.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    created: datetime | None
    deleting: bool
    document: Mapping[str, Any]
    spec: Spec | None
    invalid: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """The job's key."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What node 0 says of the job, from its report server or its termination message; every field fits the status.

    Attributes:
        state: Preparing, Training, Restarting or Finished; empty in a termination message.
        code: exit code, in a termination message only.
    """

    state: str = ""
    code: int | None = None
    attempt: int | None = None
    restarts: int | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[Mapping[str, Any], ...] = ()
    result: Mapping[str, Any] | None = None
    failure: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """The report could not be read for some time, and why."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim that a job names; `modes` is None if there is none."""

    name: str
    modes: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is to be looked up before deciding, because no watch tells it."""

    claims: tuple[str, ...] = ()
    events_of: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What was found: claims by name, the newest warnings by uid, labels that no machine has."""

    claims: Mapping[str, Claim] = field(default_factory=dict)
    warnings: Mapping[str, str] = field(default_factory=dict)
    absent_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything that a decision rests on."""

    now: datetime
    job: JobView
    children: Mapping[ChildKind, Child] = field(default_factory=dict)
    pods: tuple[PodView, ...] = ()
    report: Report | Unreachable | None = None
    polling: bool = True
    answers: Answers = field(default_factory=Answers)
    hindrance: Stalled | NotYet | None = None

    @property
    def spec(self) -> Spec:
        """The typed spec; only for jobs whose spec can be read."""
        if self.job.spec is None:
            raise Stalled("InvalidSpec", self.job.invalid)
        return self.job.spec

    @property
    def set(self) -> Child | None:
        """The StatefulSet, if it is the job's own."""
        found = self.children.get("StatefulSet")
        return found if found is not None and found.owner_uid == self.job.uid else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A Kubernetes Event to post."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A number of pods to set, without touching anything else."""

    uid: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do, in this order: apply, write the status, post events, then scale and delete.

    Scaling and deleting come last because pods hold the evidence of how a job ended until the status does.

    Attributes:
        status: the whole status; None leaves it as it is.
        delete: children to delete.
        delete_job: delete the job itself.
        requeue_after: seconds until the next look even if nothing happens.
    """

    apply: tuple[Manifest, ...] = ()
    status: Manifest | None = None
    events: tuple[Note, ...] = ()
    scale: Scale | None = None
    delete: tuple[Child, ...] = ()
    delete_job: bool = False
    requeue_after: float | None = None
