"""Every pod keeps the restricted Pod Security Standard, checked here by its text and not by our code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cpufinetune_operator.plan import objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.operator.conftest import Make

HEX = "0123456789abcdef0123456789abcdef01234567"
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
RUNTIME = {"RuntimeDefault", "Localhost"}


def violations(spec: dict[str, Any]) -> Iterator[str]:
    """Whatever the standard forbids, in the order of its table."""
    for field in ("hostNetwork", "hostPID", "hostIPC", "hostUsers"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes", ()):
        if not set(volume) - {"name"} <= VOLUMES:
            yield f"volume {volume['name']}"
    pod = spec.get("securityContext", {})
    if pod.get("sysctls"):
        yield "sysctls"
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        for problem in container_violations(pod, container):
            yield f"{container['name']}: {problem}"


def container_violations(pod: dict[str, Any], container: dict[str, Any]) -> Iterator[str]:
    own = container.get("securityContext", {})
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "privilege escalation"
    if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
        yield "capabilities"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    if not own.get("runAsNonRoot", pod.get("runAsNonRoot")):
        yield "may be root"
    if own.get("runAsUser", pod.get("runAsUser")) == 0:
        yield "is root"
    if own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") not in RUNTIME:
        yield "seccomp"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "host port"


JOBS = {
    "the smallest job": [],
    "a job of the hub with a token": [
        f"model={{name: bert, revision: {HEX}}}",
        f"dataset={{name: glue, revision: {HEX}}}",
        "hubTokenSecret=a-hub-token",
    ],
    "a job with its own volume": ["output={volume: {size: 1Gi}}"],
    "a job that writes to a claim": ["output={claim: results}"],
    "a job with everything of placement": [
        "placement={cpu: PreferXeon, features: [AMXBF16], nodeSelector: {a: b}, priorityClassName: low}"
    ],
}


@pytest.mark.parametrize("changes", JOBS.values(), ids=JOBS)
def test_restricted_holds_for(changes: list[str], make: Make) -> None:
    job = make.job(*changes)
    assert job.spec is not None
    spec = objects.stateful_set(job, job.spec, make.settings)["spec"]["template"]["spec"]
    assert list(violations(spec)) == []
    # What we ask for beyond the standard.
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == 65532
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert "command" not in container


BAD: dict[str, dict[str, Any]] = {
    "hostNetwork": {"hostNetwork": True},
    "volume h": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
    "trainer: may be root": {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
    "trainer: seccomp": {"securityContext": {"runAsNonRoot": True}},
}


@pytest.mark.parametrize(("problem", "change"), BAD.items(), ids=BAD)
def test_the_checker_finds(problem: str, change: dict[str, Any], make: Make) -> None:
    job = make.job()
    assert job.spec is not None
    spec = objects.stateful_set(job, job.spec, make.settings)["spec"]["template"]["spec"]
    assert problem in list(violations(spec | change))
