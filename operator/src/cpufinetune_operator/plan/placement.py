"""Which machines will do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpufinetune_operator import names

if TYPE_CHECKING:
    from cpufinetune.job.document import Placement, Toleration
    from cpufinetune_operator.model import Manifest


def required_labels(placement: Placement) -> dict[str, str]:
    """Labels that a machine must have: those of node-feature-discovery, then the user's own."""
    vendor = {names.LABEL_VENDOR: names.INTEL} if placement.cpu == "Xeon" else {}
    features = {names.LABEL_FEATURE + feature: "true" for feature in placement.features}
    return {**vendor, **features, **placement.node_selector}


def affinity(placement: Placement, own_labels: Manifest) -> Manifest:
    """The pod's affinity; empty if any machine will do and pods may share one."""
    node = _node_affinity(placement)
    if placement.spread == "None":
        return {"nodeAffinity": node} if node else {}
    apart = {"labelSelector": {"matchLabels": own_labels}, "topologyKey": names.LABEL_HOST}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return {"nodeAffinity": node, **anti} if node else anti


def _node_affinity(placement: Placement) -> Manifest:
    # What node-feature-discovery knows goes here, what the user asks for into nodeSelector: whoever reads the pod sees
    # which is which.
    wanted = {key: value for key, value in required_labels(placement).items() if key not in placement.node_selector}
    terms = [_expression(key, value) for key, value in wanted.items()]
    out: Manifest = {}
    if terms:
        out["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    if placement.cpu == "PreferXeon":
        preference = {"matchExpressions": [_expression(names.LABEL_VENDOR, names.INTEL)]}
        out["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 100, "preference": preference}]
    return out


def _expression(key: str, value: str) -> Manifest:
    return {"key": key, "operator": "In", "values": [value]}


def tolerations(placement: Placement) -> list[Manifest]:
    """The pod's tolerations."""
    return [_toleration(one) for one in placement.tolerations]


def _toleration(given: Toleration) -> Manifest:
    fields = {
        "key": given.key,
        "operator": given.operator,
        "value": given.value,
        "effect": given.effect,
        "tolerationSeconds": given.toleration_seconds,
    }
    return {key: value for key, value in fields.items() if value is not None}
