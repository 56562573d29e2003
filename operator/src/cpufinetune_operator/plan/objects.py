"""The job's children as the API server shall hold them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cpufinetune_operator import names
from cpufinetune_operator.plan import pod

if TYPE_CHECKING:
    from cpufinetune.job.document import Spec
    from cpufinetune_operator.model import JobView, Manifest
    from cpufinetune_operator.settings import Settings

# Fields of a StatefulSet's spec that cannot change.
_SHAPE = ("serviceName", "podManagementPolicy", "selector", "volumeClaimTemplates")
# Where clouds hand out credentials to whoever asks.
_METADATA_SERVICE = "169.254.0.0/16"
_DNS_PORTS = (53, 5353)  # the second is where some distributions let their DNS pods listen


def service(job: JobView) -> Manifest:
    """The headless Service that gives each pod its name, before it is ready as well."""
    ports = {"coordinator": names.PORT_COORDINATOR, "report": names.PORT_REPORT}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "ipFamilyPolicy": "PreferDualStack",
        "selector": pod.own_labels(job),
        "ports": [
            {"name": name, "port": number, "targetPort": number, "protocol": "TCP"} for name, number in ports.items()
        ],
    }
    return _sealed({"apiVersion": "v1", "kind": "Service", "metadata": _metadata(job), "spec": spec})


def network_policy(job: JobView, spec: Spec, settings: Settings) -> Manifest:
    """Who may talk to the pods: each other and the operator. Collectives ask nobody for a password."""
    peers = [{"podSelector": {"matchLabels": pod.own_labels(job)}}]
    all_tcp = [{"protocol": "TCP"}]
    dns = [{"protocol": protocol, "port": port} for port in _DNS_PORTS for protocol in ("UDP", "TCP")]
    egress: list[Manifest] = [{"to": peers, "ports": all_tcp}, {"ports": dns}]
    if pod.needs_fetch(spec):
        egress.append({"to": _world(), "ports": [{"protocol": "TCP", "port": 443}]})
    policy = {
        "podSelector": {"matchLabels": pod.own_labels(job)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": peers, "ports": all_tcp},
            {"from": [_operator(settings)], "ports": [{"protocol": "TCP", "port": names.PORT_REPORT}]},
        ],
        "egress": egress,
    }
    head = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _metadata(job)}
    return _sealed({**head, "spec": policy})


def _world() -> list[Manifest]:
    return [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [_METADATA_SERVICE]}}, {"ipBlock": {"cidr": "::/0"}}]


def _operator(settings: Settings) -> Manifest:
    namespace = settings.operator_namespace
    where = {"matchLabels": {"kubernetes.io/metadata.name": namespace}} if namespace else {}
    return {
        "namespaceSelector": where,
        "podSelector": {"matchLabels": {names.LABEL_NAME: names.COMPONENT}},
    }


def stateful_set(job: JobView, spec: Spec, settings: Settings) -> Manifest:
    """The pods: all started at once, each replaced only after it is gone."""
    body: Manifest = {
        "serviceName": job.name,
        "podManagementPolicy": "Parallel",
        # A changed template reaches no pod of a running gang, whose members must all be alike.
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 2,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": pod.own_labels(job)},
        "template": pod.template(job, spec, settings),
    }
    if spec.output.volume:
        body["volumeClaimTemplates"] = [_volume(job, spec)]
    manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": _metadata(job), "spec": body}
    shape = _digest({key: body.get(key) for key in _SHAPE})
    sealed = _sealed(manifest, {names.ANNOTATION_SHAPE: shape})
    # Not part of the hash: the number of pods is compared on its own.
    sealed["spec"]["replicas"] = spec.nodes
    return sealed


def _volume(job: JobView, spec: Spec) -> Manifest:
    """A volume a pod. It belongs to the job, not to the set: it outlives pods and set, and goes with the job."""
    volume = spec.output.volume
    if volume is None:  # the caller looked
        raise ValueError("the job has no volume")
    request: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class_name is not None:
        request["storageClassName"] = volume.storage_class_name
    owner = {key: value for key, value in owner_reference(job).items() if key in {"apiVersion", "kind", "name", "uid"}}
    metadata = {"name": names.OUTPUT, "labels": pod.labels(job), "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": request}


def owner_reference(job: JobView) -> Manifest:
    """What makes an object go with the job."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _metadata(job: JobView) -> Manifest:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "labels": pod.labels(job),
        "ownerReferences": [owner_reference(job)],
    }


def _sealed(manifest: Manifest, annotations: dict[str, str] | None = None) -> Manifest:
    """With the annotations that tell later whether anything changed."""
    seals = {**(annotations or {}), names.ANNOTATION_HASH: _digest(manifest)}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": seals}}


def _digest(value: Any) -> str:
    return digest(json.dumps(value, sort_keys=True))


def digest(text: str) -> str:
    """A short fingerprint."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
