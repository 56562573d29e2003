"""A cluster to run end-to-end tests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localcluster.cluster import Cluster
    from localcluster.kubectl import Kubectl


@dataclass(slots=True)
class Provider:
    """Any cluster; `local` is set if it is one of ours, with all its tools for failures."""

    kubectl: Kubectl
    local: Cluster | None = None
    seconds: dict[str, float] = field(default_factory=dict)
