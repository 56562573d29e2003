"""From the API server's objects to the few fields that count; the rest is not kept in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cpufinetune.job import InvalidJob, parse
from cpufinetune_operator import names
from cpufinetune_operator.model import Child, Exit, JobView, PodView, Waiting
from cpufinetune_operator.plan import objects, times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cpufinetune.job.document import Spec
    from cpufinetune_operator.model import ChildKind

    Raw = Mapping[str, Any]

# The end of a log in a termination message is at most this long; more is nobody's.
_LONGEST_MESSAGE = 8192
_MOST_PROBLEMS = 5


def job(raw: Raw, known: JobView | None = None) -> JobView:
    """A job's view. `known` is its last one, whose spec need not be read again if it is the same."""
    metadata = raw["metadata"]
    uid, generation = metadata["uid"], metadata.get("generation", 0)
    if known and (known.uid, known.generation) == (uid, generation):
        document, spec, invalid = known.document, known.spec, known.invalid
    else:
        document = raw.get("spec", {})
        spec, invalid = _spec(metadata, document)
    return JobView(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=uid,
        generation=generation,
        created=times.parse(metadata.get("creationTimestamp")),
        deleting="deletionTimestamp" in metadata,
        document=document,
        spec=spec,
        invalid=invalid,
        status=raw.get("status", {}),
    )


def warm_up() -> None:
    """Load what reading a spec takes, so that the first job does not wait for it."""
    _spec({"name": "none", "namespace": "none"}, {})


def _spec(metadata: Raw, document: Raw) -> tuple[Spec | None, str]:
    """The spec as its dataclass. It passed the API server, but perhaps by the CRD of another version."""
    head = {"name": metadata["name"], "namespace": metadata["namespace"]}
    whole = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": head, "spec": document}
    try:
        return parse(whole, rules=False).spec, ""
    except InvalidJob as error:
        listed = "; ".join(str(problem) for problem in error.problems[:_MOST_PROBLEMS])
        return None, f"This operator's version cannot read the spec: {listed}."


def child(raw: Raw) -> Child:
    """A child's view."""
    metadata, spec = raw["metadata"], raw.get("spec", {})
    annotations = metadata.get("annotations", {})
    owner = _controller(metadata)
    template = spec.get("template", {}).get("metadata", {}).get("annotations", {})
    document = template.get(names.ANNOTATION_JOB)
    return Child(
        kind=cast("ChildKind", raw["kind"]),
        name=metadata["name"],
        uid=metadata["uid"],
        owner_uid=owner.get("uid", ""),
        owned_by_namesake=owner.get("kind") == names.KIND and owner.get("name") == metadata["name"],
        hash=annotations.get(names.ANNOTATION_HASH, ""),
        shape=annotations.get(names.ANNOTATION_SHAPE, ""),
        document=objects.digest(document) if document else "",
        replicas=spec.get("replicas", 0),
        deleting="deletionTimestamp" in metadata,
    )


def pod(raw: Raw) -> PodView:
    """A pod's view."""
    metadata, status = raw["metadata"], raw.get("status", {})
    containers, inits = status.get("containerStatuses", ()), status.get("initContainerStatuses", ())
    trainer, fetch = _named(containers, names.TRAINER), _named(inits, names.FETCH)
    running = trainer.get("state", {}).get("running")
    ordinal = metadata["name"].rpartition("-")[2]
    fetched = _exit(fetch)
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        index=int(ordinal) if ordinal.isdecimal() else -1,
        job_uid=metadata.get("labels", {}).get(names.LABEL_JOB_UID, ""),
        owner_uid=_controller(metadata).get("uid", ""),
        created=times.parse(metadata.get("creationTimestamp")),
        deleting="deletionTimestamp" in metadata,
        node=raw.get("spec", {}).get("nodeName", ""),
        ip=status.get("podIP", ""),
        running=running is not None and status.get("phase") == "Running",
        running_since=times.parse((running or {}).get("startedAt")),
        restart_count=trainer.get("restartCount", 0),
        unscheduled=_unscheduled(status),
        waiting=tuple(_waiting([*inits, *containers])),
        exit=_exit(trainer),
        fetch_exit=fetched if fetched and fetched.code else None,
        disruption=_disruption(status),
    )


def _controller(metadata: Raw) -> Raw:
    owners = metadata.get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})


def _named(statuses: Sequence[Raw], name: str) -> Raw:
    return next((one for one in statuses if one.get("name") == name), {})


def _exit(status: Raw) -> Exit | None:
    """The last end, which is under `lastState` as soon as the container runs or waits again."""
    for place in ("state", "lastState"):
        end = status.get(place, {}).get("terminated")
        if end:
            return Exit(
                code=end.get("exitCode", 0),
                reason=end.get("reason", ""),
                message=end.get("message", "")[-_LONGEST_MESSAGE:],
                finished_at=times.parse(end.get("finishedAt")),
            )
    return None


def _waiting(statuses: Sequence[Raw]) -> list[Waiting]:
    found = ((one.get("name", ""), one.get("state", {}).get("waiting")) for one in statuses)
    return [
        Waiting(container=name, reason=waiting.get("reason", ""), message=waiting.get("message", ""))
        for name, waiting in found
        if waiting
    ]


def _unscheduled(status: Raw) -> str | None:
    condition = _condition(status, "PodScheduled")
    if condition.get("status") == "False" and condition.get("reason") == "Unschedulable":
        return str(condition.get("message", ""))
    return None


def _disruption(status: Raw) -> str:
    condition = _condition(status, "DisruptionTarget")
    if condition.get("status") == "True":
        return str(condition.get("reason", "Disrupted"))
    lost = status.get("phase") == "Failed" or status.get("reason") == "NodeLost"
    return str(status.get("reason", "Failed")) if lost else ""


def _condition(status: Raw, kind: str) -> Raw:
    return next((one for one in status.get("conditions", ()) if one.get("type") == kind), {})
