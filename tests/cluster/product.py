"""The product on a cluster: its images, and the operator as the manifests install it.

`python -m product TARGET` builds a target of the trainer's image with buildah, under the tag TARGET.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localcluster import images

if TYPE_CHECKING:
    from localcluster.cluster import Cluster
    from localcluster.kubectl import Kubectl

ROOT = Path(__file__).parents[2]
TRAINER, OPERATOR = "localhost/cpufinetune-trainer:dev", "localhost/cpufinetune-operator:dev"
SYSTEM = "cpufinetune-system"
OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{manifests}]
images:
  - {{name: cpufinetune-operator, newName: localhost/cpufinetune-operator, newTag: dev}}
  - {{name: cpufinetune-trainer, newName: localhost/cpufinetune-trainer, newTag: dev}}
configurations: [images.yaml]
"""
DONE = ("Complete", "Failed")


def build_images() -> list[Path]:
    """Build the trainer's and the operator's image; return their archives."""
    build_trainer("upstream", TRAINER)
    images.build(ROOT / "image" / "operator.Dockerfile", ROOT, OPERATOR)
    return [images.archive(TRAINER), images.archive(OPERATOR)]


def build_trainer(target: str, name: str) -> None:
    """Build a target of the trainer's Dockerfile with whatever torch the configured index has.

    The index of CPU builds may be out of reach.
    """
    images.build(ROOT / "image" / "trainer.Dockerfile", ROOT, name, {"TORCH_INDEX": ""}, target=target)


def install(kubectl: Kubectl, overlay: Path) -> None:
    """Install the operator as README says, with the names of the images just built; wait until it is ready."""
    manifests = ROOT / "manifests"
    relative = Path(*[".."] * (len(overlay.resolve().parts) - 1)) / manifests.relative_to("/")
    (overlay / "kustomization.yaml").write_text(OVERLAY.format(manifests=relative), encoding="utf-8")
    names = (manifests / "overlays" / "cluster-wide" / "images.yaml").read_text(encoding="utf-8")
    (overlay / "images.yaml").write_text(names, encoding="utf-8")
    kubectl("apply", "--server-side", "-k", str(overlay))
    ready = ("--for=condition=Available", "deployment/cpufinetune-operator", "--timeout=120s")
    kubectl("wait", *ready, "--namespace", SYSTEM, seconds=130)


@dataclass(frozen=True, slots=True)
class Installed:
    """A cluster with the operator on it."""

    cluster: Cluster

    @property
    def kubectl(self) -> Kubectl:
        """The administrator's kubectl."""
        return self.cluster.kubectl

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        """Return a job as it is now."""
        return self.kubectl.get("--namespace", namespace, "cpufinetune", name)

    def condition(self, namespace: str, name: str, kind: str) -> dict[str, Any]:
        """Return a condition of a job; empty if it has none."""
        conditions = self.job(namespace, name)["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def finish(self, namespace: str, name: str, seconds: float) -> dict[str, Any]:
        """Wait until a job has ended; return it."""

        def over() -> bool:
            return any(self.condition(namespace, name, kind).get("status") == "True" for kind in DONE)

        try:
            self.kubectl.wait(f"job {name} ends", over, seconds)
        finally:
            print(self.kubectl.attempt("--namespace", namespace, "get", "cft,pods", "--output=wide").stdout)
        return self.job(namespace, name)


if __name__ == "__main__":
    build_trainer(sys.argv[1], f"localhost/cpufinetune-trainer:{sys.argv[1]}")
