"""The kinds of objects that the operator watches."""

from __future__ import annotations

from dataclasses import dataclass

from cpufinetune_operator import names


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects, and where the API server has them. `selector` narrows what is watched to our own."""

    name: str
    group: str
    version: str
    plural: str
    selector: str = names.SELECTOR

    @property
    def api_version(self) -> str:
        """As objects state it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """Path of the collection, or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{where}/{self.plural}" + (f"/{name}" if name else "")


JOB = Kind(names.KIND, names.GROUP, names.VERSION, names.PLURAL, selector="")
SERVICE = Kind("Service", "", "v1", "services")
NETWORK_POLICY = Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies")
STATEFUL_SET = Kind("StatefulSet", "apps", "v1", "statefulsets")
POD = Kind("Pod", "", "v1", "pods")
CHILDREN = (SERVICE, NETWORK_POLICY, STATEFUL_SET)
WATCHED = (JOB, *CHILDREN, POD)
BY_NAME = {kind.name: kind for kind in WATCHED}
