"""All that the operator asks of the API server beyond watching. It never touches a Secret, with any verb."""

from __future__ import annotations

import datetime as dt
import hashlib
import socket
from typing import TYPE_CHECKING

from cpufinetune_operator import kinds, names
from cpufinetune_operator.model import NotYet, Stalled
from cpufinetune_operator.plan import refuse, report
from cpufinetune_operator.transport import APPLY, MERGE, METADATA_LIST, Refused, Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpufinetune_operator.kinds import Kind
    from cpufinetune_operator.model import Child, JobView, Manifest, Note, Scale

_FORBIDDEN, _NOT_FOUND, _CONFLICT = 403, 404, 409
_CHUNK = "500"
# Kinds of which somebody else's may have none of the fields that ours sets.
_ADOPTABLE = {"Service"}
_MOST_EVENTS = "50"
# Of all that is said of a pod or a set, what keeps pods from being created or from getting their volumes.
_TELLING = {"FailedCreate", "FailedMount", "FailedAttachVolume"}
_LONGEST_NOTE = 1024
_SOON_SECONDS = 1.0


class Gone(Exception):  # noqa: N818 - it names the finding
    """The job is not there any more, or another one has its name."""


class Kube:
    """Requests of the operator; `wrote` is told kind and verb of each that changes something."""

    def __init__(self, transport: Transport, wrote: Callable[[str, str], None]) -> None:
        self._transport = transport
        self._wrote = wrote

    async def serves_jobs(self) -> bool:
        """Whether the CustomResourceDefinition is there, with its status."""
        try:
            found = await self._transport.send("GET", f"/apis/{names.API_VERSION}")
        except Refused as error:
            if error.code == _NOT_FOUND:
                return False
            raise
        served = {one["name"] for one in found.get("resources", ())}
        return {names.PLURAL, f"{names.PLURAL}/status"} <= served

    async def apply(self, manifest: Manifest, known: Child | None) -> Manifest:
        """Apply a child; `known` is the object that it is to change, None if there should be none.

        Only what is known to be ours is changed by force, and only if it still is the same object.

        Raises:
            Stalled: somebody else's object has the name, or the API server refuses this one.
            NotYet: the object is not the known one any more.
        """
        kind = kinds.BY_NAME[manifest["kind"]]
        metadata = manifest["metadata"] | ({"uid": known.uid} if known else {})
        path = kind.path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": names.MANAGER, "force": "true" if known else "false"}
        if known is None and kind.name in _ADOPTABLE:
            await self._keep_off(kind, manifest)
        try:
            found = await self._transport.send(
                "PATCH", path, query=query, body={**manifest, "metadata": metadata}, content=APPLY
            )
        except Refused as error:
            raise await self._why_not(error, kind, manifest, known) from error
        self._wrote(kind.name, "apply")
        return found

    async def _keep_off(self, kind: Kind, manifest: Manifest) -> None:
        """Refuse to apply to somebody else's object, which need not conflict with what is applied."""
        name, owner = manifest["metadata"]["name"], manifest["metadata"]["ownerReferences"][0]["uid"]
        try:
            there = await self._transport.send("GET", kind.path(manifest["metadata"]["namespace"], name))
        except Refused as error:
            if error.code == _NOT_FOUND:
                return
            raise NotYet("Unreadable", report.sentence(error.message)) from error
        owners = there["metadata"].get("ownerReferences", ())
        if not any(one["uid"] == owner for one in owners):
            # A namesake's is collected in a moment.
            if any(one.get("kind") == names.KIND and one.get("name") == name for one in owners):
                raise NotYet("Changed", f"{kind.name} {name} is not what it was a moment ago", _SOON_SECONDS)
            raise refuse.name_conflict(kind.name, name)

    async def _why_not(self, error: Refused, kind: Kind, manifest: Manifest, known: Child | None) -> Exception:
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        if error.code == _NOT_FOUND:
            return NotYet("NamespaceGone", report.sentence(error.message))
        if error.code != _CONFLICT and known:
            return Stalled("Refused", f"The API server refuses the {kind.name}: {report.sentence(error.message)}")
        try:
            there = await self._transport.send("GET", kind.path(namespace, name))
        except Refused:
            there = {}
        owners = there.get("metadata", {}).get("ownerReferences", ())
        uid = manifest["metadata"]["ownerReferences"][0]["uid"]
        theirs = [one for one in owners if one.get("kind") == names.KIND and one.get("name") == name]
        if there and not theirs:
            return refuse.name_conflict(kind.name, name)
        if any(one["uid"] == uid for one in theirs) or error.code == _CONFLICT:
            return NotYet("Changed", f"{kind.name} {name} is not what it was a moment ago", _SOON_SECONDS)
        return Stalled("Refused", f"The API server refuses the {kind.name}: {report.sentence(error.message)}")

    async def scale(self, job: JobView, scale: Scale) -> Manifest | None:
        """Set the number of pods and nothing else; None if there is nothing to scale."""
        body = {"metadata": {"uid": scale.uid}, "spec": {"replicas": scale.replicas}}
        path = kinds.STATEFUL_SET.path(job.namespace, job.name)
        try:
            found = await self._transport.send(
                "PATCH", path, query={"fieldManager": names.MANAGER}, body=body, content=MERGE
            )
        except Refused as error:
            if error.code in {_NOT_FOUND, _CONFLICT}:
                return None
            raise NotYet("ScaleRefused", report.sentence(error.message)) from error
        self._wrote("StatefulSet", "scale")
        return found

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete an object if it still is this one; what it owns goes with it."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._transport.send("DELETE", kind.path(namespace, name), body=body)
        except Refused as error:
            if error.code in {_NOT_FOUND, _CONFLICT}:
                return
            raise NotYet("DeleteRefused", report.sentence(error.message)) from error
        self._wrote(kind.name, "delete")

    async def delete_child(self, job: JobView, child: Child) -> None:
        """Delete a child."""
        await self.delete(kinds.BY_NAME[child.kind], job.namespace, child.name, child.uid)

    async def write_status(self, job: JobView, status: Manifest) -> Manifest:
        """Write the whole status; return the job as it is then.

        Raises:
            Gone: there is no such job any more.
        """
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": job.name, "namespace": job.namespace, "uid": job.uid},
            "status": status,
        }
        # The API server put defaults into the status when the job was created: they are its creator's, who never
        # writes it again.
        query = {"fieldManager": names.MANAGER, "force": "true"}
        try:
            path = f"{kinds.JOB.path(job.namespace, job.name)}/status"
            found = await self._transport.send("PATCH", path, query=query, body=body, content=APPLY)
        except Refused as error:
            if error.code == _NOT_FOUND:
                raise Gone(job.name) from error
            if error.code == _CONFLICT:
                # Lost a race inside the API server, or another job has the name by now: the next look knows.
                raise NotYet("Changed", f"{job.name} is not what it was a moment ago", _SOON_SECONDS) from error
            raise NotYet("StatusRefused", report.sentence(error.message)) from error
        self._wrote(names.KIND, "status")
        return found

    async def post(self, job: JobView, note: Note, now: dt.datetime) -> None:
        """Post an event; one that was posted already is left alone."""
        text = f"{job.uid} {note.reason} {note.message}"
        name = f"{job.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": job.namespace},
            "eventTime": now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": note.type,
            "reason": note.reason,
            "action": note.action,
            "note": note.message.encode()[:_LONGEST_NOTE].decode(errors="ignore"),
            "reportingController": f"{names.GROUP}/operator",
            "reportingInstance": socket.gethostname()[:128] or names.COMPONENT,
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
            },
        }
        try:
            await self._transport.send("POST", f"/apis/events.k8s.io/v1/namespaces/{job.namespace}/events", body=body)
        except Refused as error:
            if error.code == _CONFLICT:
                return
            raise
        self._wrote("Event", "create")

    async def claim_modes(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """Access modes of a PersistentVolumeClaim; None if there is none."""
        try:
            found = await self._transport.send("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
        except Refused as error:
            if error.code == _NOT_FOUND:
                return None
            raise NotYet("ClaimUnreadable", report.sentence(error.message)) from error
        # Once bound, the volume decides.
        modes = found.get("status", {}).get("accessModes") or found["spec"]["accessModes"]
        return tuple(modes)

    async def warning(self, namespace: str, uid: str) -> str:
        """The newest warning about an object that tells why pods are missing or wait; empty if there is none."""
        query = {"fieldSelector": f"regarding.uid={uid},type=Warning", "limit": _MOST_EVENTS}
        try:
            found = await self._transport.send(
                "GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", query=query
            )
        except Refused:
            return ""  # a diagnosis less, and no reason to stop
        telling = [event for event in found.get("items", ()) if event.get("reason") in _TELLING]
        newest: Manifest = max(telling, key=_last_seen, default={})
        return str(newest.get("note", ""))

    async def has_machine(self, label: str) -> bool | None:
        """Whether any machine has a label; None if the operator may not know."""
        query = {"labelSelector": label, "limit": "1"}
        try:
            found = await self._transport.send("GET", "/api/v1/nodes", query=query, accept=METADATA_LIST)
        except Refused:
            return None
        return bool(found.get("items"))

    async def uids(self, kind: Kind, namespace: str | None) -> tuple[set[str], str]:
        """Of all objects that are watched of a kind, and the version of the whole."""
        query, found, version = {"limit": _CHUNK, "labelSelector": kind.selector}, set(), ""
        while True:
            try:
                page = await self._transport.send("GET", kind.path(namespace), query=query, accept=METADATA_LIST)
            except Refused as error:
                raise NotYet("ListRefused", report.sentence(error.message)) from error
            found |= {item["metadata"]["uid"] for item in page.get("items", ())}
            version = version or page["metadata"].get("resourceVersion", "")
            if not page["metadata"].get("continue"):
                return found, version
            query = {**query, "continue": page["metadata"]["continue"]}


def _last_seen(event: Manifest) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), "")
