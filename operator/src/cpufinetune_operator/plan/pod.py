"""The pod of a node of the job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cpufinetune_operator import names
from cpufinetune_operator.plan import placement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpufinetune.job.document import Spec
    from cpufinetune_operator.model import JobView, Manifest
    from cpufinetune_operator.settings import Settings

DEFAULT_CPU = 1
DEFAULT_MEMORY = "4Gi"
USER = 65532
GRACE_SECONDS = 60
TOKEN_KEY = "token"  # noqa: S105 - the key's name
TOKEN_FOLDER = "/var/run/secrets/cpufinetune"  # noqa: S105 - where it is
READABLE_BY_GROUP = 0o440
# These policies are the operator's: pods must not differ because of them.
_OPERATORS_OWN = ("suspend", "ttlSecondsAfterFinished", "cleanPods")


def document(job: JobView) -> str:
    """The job document as its pods get it: canonical JSON, so that equal documents are equal text."""
    spec = dict(job.document)
    policy: Mapping[str, Any] = spec.get("runPolicy") or {}
    spec["runPolicy"] = {key: value for key, value in policy.items() if key not in _OPERATORS_OWN}
    metadata = {"name": job.name, "namespace": job.namespace, "uid": job.uid}
    whole = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def own_labels(job: JobView) -> dict[str, str]:
    """Labels that only this job's pods have, whatever a namesake left behind."""
    return {names.LABEL_JOB: job.name, names.LABEL_JOB_UID: job.uid}


def labels(job: JobView) -> dict[str, str]:
    """Labels of the job's children."""
    return {
        names.LABEL_NAME: "cpufinetune",
        names.LABEL_MANAGED_BY: names.COMPONENT,
        names.LABEL_JOB: job.name,
    }


def needs_fetch(spec: Spec) -> bool:
    """Whether something has to come from the hub."""
    return bool(spec.model.name or spec.dataset.name)


def template(job: JobView, spec: Spec, settings: Settings) -> Manifest:
    """The StatefulSet's pod template."""
    # Both spellings are in use: old sidecar injectors read the annotation, newer ones the label.
    no_sidecar = {"sidecar.istio.io/inject": "false"}
    return {
        "metadata": {
            "labels": {**labels(job), **own_labels(job), **no_sidecar},
            "annotations": {names.ANNOTATION_JOB: document(job), **no_sidecar},
        },
        "spec": _pod_spec(job, spec, settings),
    }


def _pod_spec(job: JobView, spec: Spec, settings: Settings) -> Manifest:
    optional = {
        "initContainers": [_fetch(spec, settings)] if needs_fetch(spec) else [],
        "affinity": placement.affinity(spec.placement, own_labels(job)),
        "nodeSelector": dict(spec.placement.node_selector),
        "tolerations": placement.tolerations(spec.placement),
        "priorityClassName": spec.placement.priority_class_name or "",
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "restartPolicy": "Always",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            # A big volume is not walked through again at every start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_trainer(spec, settings)],
        "volumes": _volumes(spec),
        **{key: value for key, value in optional.items() if value},
    }


def _trainer(spec: Spec, settings: Settings) -> Manifest:
    mounts = [*_common_mounts(), _mount("shm", "/dev/shm")]  # noqa: S108 - the pod's own
    if spec.model.claim:
        mounts.append({**_mount("model", "/model"), "readOnly": True})
    if spec.dataset.claim:
        mounts.append({**_mount("data", "/data"), "readOnly": True})
    mounts.append(_mount(names.OUTPUT, "/output"))
    return {
        **_container(names.TRAINER, "pod", spec, settings),
        # Whatever has to come from the hub is there by now, and the token is not.
        "env": [*_environment(), {"name": "HF_HUB_OFFLINE", "value": "1"}],
        "ports": [
            {"name": "coordinator", "containerPort": names.PORT_COORDINATOR, "protocol": "TCP"},
            {"name": "report", "containerPort": names.PORT_REPORT, "protocol": "TCP"},
        ],
        "volumeMounts": mounts,
    }


def _fetch(spec: Spec, settings: Settings) -> Manifest:
    mounts = _common_mounts()
    if hub_token_secret(spec):
        mounts.append({**_mount("hub-token", TOKEN_FOLDER), "readOnly": True})
    return {
        **_container(names.FETCH, "fetch", spec, settings),
        "env": _environment(),
        "volumeMounts": mounts,
    }


def hub_token_secret(spec: Spec) -> str:
    """Name of the Secret with the hub's token; empty if none is needed."""
    return (spec.hub_token_secret or "") if needs_fetch(spec) else ""


def _container(name: str, command: str, spec: Spec, settings: Settings) -> Manifest:
    amounts = {"cpu": str(spec.node.cpu or DEFAULT_CPU), "memory": spec.node.memory or DEFAULT_MEMORY}
    return {
        "name": name,
        "image": spec.image or settings.trainer_image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [command],
        # Equal and whole: only then does the kubelet give a container cores of its own.
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _environment() -> list[Manifest]:
    values = {
        "HOME": "/tmp",  # noqa: S108 - the pod's own
        "HF_HOME": "/scratch/hf",
        "XDG_CACHE_HOME": "/scratch/cache",
        "MPLCONFIGDIR": "/scratch/mpl",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _common_mounts() -> list[Manifest]:
    return [
        {**_mount("job", "/etc/cpufinetune"), "readOnly": True},
        _mount("scratch", "/scratch"),
        _mount("tmp", "/tmp"),  # noqa: S108 - the pod's own
    ]


def _mount(name: str, path: str) -> Manifest:
    return {"name": name, "mountPath": path}


def _volumes(spec: Spec) -> list[Manifest]:
    field = {"fieldPath": f"metadata.annotations['{names.ANNOTATION_JOB}']"}
    volumes: list[Manifest] = [
        {"name": "job", "downwardAPI": {"items": [{"path": "job.yaml", "fieldRef": field}]}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": spec.node.shared_memory}},
    ]
    if spec.model.claim:
        volumes.append(_claim("model", spec.model.claim))
    if spec.dataset.claim:
        volumes.append(_claim("data", spec.dataset.claim))
    if spec.output.claim:
        volumes.append(_claim(names.OUTPUT, spec.output.claim))
    elif not spec.output.volume:
        volumes.append({"name": names.OUTPUT, "emptyDir": {}})
    secret = hub_token_secret(spec)
    if secret:
        items = [{"key": TOKEN_KEY, "path": TOKEN_KEY}]
        source = {"secretName": secret, "items": items, "defaultMode": READABLE_BY_GROUP}
        volumes.append({"name": "hub-token", "secret": source})
    return volumes


def _claim(name: str, claim: str) -> Manifest:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}
