"""Storage of the cluster: volumes that exist already, bound to claims by the controller-manager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from localcluster.network import run
from localcluster.plan import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from localcluster.plan import NodePlan

CLASS = "standard"
VOLUMES = 4
MEBIBYTES = 2048
BLOCK = 1 << 20


def storage_class() -> dict[str, Any]:
    """The default class: claims bind when the pod that uses them has a node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def prepare(node: NodePlan, names: Iterable[str], mebibytes: int = MEBIBYTES) -> list[dict[str, Any]]:
    """Make volumes of limited size on a node and describe them.

    They are in memory: a full one is really full, and one that is not used costs nothing.
    """
    volumes = []
    for name in names:
        folder = node.folder / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        if not folder.is_mount():
            run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0777", "tmpfs", str(folder))
        volumes.append(_local(node, f"{node.name}-{name}", folder, mebibytes))
    return volumes


def shared(name: str, folder: Path, *, namespace: str, mebibytes: int = MEBIBYTES) -> list[dict[str, Any]]:
    """Describe a folder of this machine as a volume that all nodes may mount, and a claim that is bound to it."""
    modes = ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}", "labels": {LABEL: "localcluster"}},
        "spec": {
            "capacity": {"storage": f"{mebibytes}Mi"},
            "accessModes": modes,
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "shared",
            "claimRef": {"namespace": namespace, "name": name},
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "shared",
            "volumeName": f"{namespace}-{name}",
            "resources": {"requests": {"storage": f"{mebibytes}Mi"}},
        },
    }
    return [volume, claim]


def fill(folder: Path) -> Path:
    """Write into a volume until it is full; return the file, for whoever wants the room back."""
    file = folder / ".full"
    with file.open("wb", buffering=0) as output:
        size = BLOCK
        while size:
            try:
                output.write(os.urandom(size))
            except OSError:
                size //= 2
    return file


def _local(node: NodePlan, name: str, folder: Path, mebibytes: int) -> dict[str, Any]:
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {LABEL: "localcluster"}},
        "spec": {
            "capacity": {"storage": f"{mebibytes}Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": CLASS,
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        },
    }
