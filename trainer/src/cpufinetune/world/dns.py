"""Where a pod is in the cluster's DNS: namespace and domain from its resolv.conf, and the names of its peers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cpufinetune.errors import JobError
from cpufinetune.world.peers import host_names

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
OWN = re.compile(rf"(?P<namespace>{LABEL})\.svc\.(?P<domain>{LABEL}(\.{LABEL})*)\.?")


@dataclass(frozen=True, slots=True)
class Zone:
    """A namespace and the cluster's domain, for example `ml` and `cluster.local`."""

    namespace: str
    domain: str

    def peers(self, set_name: str, nodes: int) -> tuple[str, ...]:
        """Return the names of all pods of a StatefulSet, whose Service is called like it.

        They end in a dot: without it each question would be asked once more for each entry of the search list.
        """
        service = f"{{set}}.{self.namespace}.svc.{self.domain}."
        return host_names(f"{{set}}-{{node}}.{service}", set_name, nodes)


def read_zone(text: str) -> Zone:
    """Read the search list of a resolv.conf: `<namespace>.svc.<domain> svc.<domain> <domain> …`.

    Raises:
        JobError: there is no such entry.
    """
    # As to the resolver, the last list counts.
    for line in reversed(text.splitlines()):
        keyword, *entries = line.split() or [""]
        if keyword == "search":
            found = next(filter(None, (OWN.fullmatch(entry.lower()) for entry in entries)), None)
            if found is not None:
                return Zone(found["namespace"], found["domain"])
            break
    raise JobError(
        "NoClusterDomain",
        "resolv.conf has no search entry like <namespace>.svc.<domain>",
        "run in a pod whose dnsPolicy is ClusterFirst",
    )
