"""Who a node is: everything follows from the pod's own name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cpufinetune.errors import JobError

POD_NAME = re.compile(r"(?P<set>[a-z0-9]([-a-z0-9]*[a-z0-9])?)-(?P<ordinal>\d+)")


@dataclass(frozen=True, slots=True)
class Identity:
    """The place of a node in its StatefulSet; `node` is the ordinal."""

    set_name: str
    node: int

    @property
    def coordinates(self) -> bool:
        """Node 0 coordinates the others."""
        return self.node == 0


def identify(pod_name: str) -> Identity:
    """Read the node's place from a name such as `mrpc-1`.

    Raises:
        JobError: the name is not one of a StatefulSet's pod.
    """
    found = POD_NAME.fullmatch(pod_name)
    if found is None:
        raise JobError("BadPodName", f"'{pod_name}' does not end in an ordinal", "run as a pod of a StatefulSet")
    return Identity(found["set"], int(found["ordinal"]))
