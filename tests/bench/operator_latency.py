"""How fast an operator turns objects into pods: `make bench-operator`.

On an API server and a controller-manager of this machine, without nodes: pods stay pending, so that only the operator
and the controllers are measured. With `--template`, `--resource`, `--label` and `--command` any other operator can be
measured in the same way; what it needs (its CRD, its rights) is applied from `--setup`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import ssl
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import audit
import yaml
from localcluster.cluster import Cluster, down
from localcluster.plan import claimed, plan
from localcluster.programs import programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
NAMESPACE = "bench"
USER = "operator-under-test"
RAISED = {"kube-controller-manager": ("--kube-api-qps=200", "--kube-api-burst=400")}
READY_SECONDS, LONGEST = 60.0, 600.0
QUIET_SECONDS = 5.0
SINGLES = 20
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Pods:
    """When the pods of each job were first seen."""

    label: str
    wanted: int
    seen: dict[str, dict[str, float]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, event: dict[str, Any]) -> None:
        """Take an event of the watch."""
        metadata = event["object"]["metadata"]
        job = metadata.get("labels", {}).get(self.label)
        if event["type"] == "ADDED" and job:
            self.seen.setdefault(job, {}).setdefault(metadata["name"], time.monotonic())
            self.changed.set()

    async def complete(self, jobs: Sequence[str]) -> dict[str, float]:
        """Wait until all pods of all jobs exist; return when the last of each did."""
        async with asyncio.timeout(LONGEST):
            while any(len(self.seen.get(job, {})) < self.wanted for job in jobs):
                self.changed.clear()
                await self.changed.wait()
        return {job: max(self.seen[job].values()) for job in jobs}


@dataclass(slots=True)
class Bench:
    """One API server with one operator."""

    options: argparse.Namespace
    cluster: Cluster
    session: aiohttp.ClientSession
    pods: Pods

    @property
    def url(self) -> str:
        """Path of the objects that are created."""
        return f"{self.cluster.server}{self.options.resource.replace('NAMESPACE', NAMESPACE)}"

    async def create(self, name: str) -> float:
        """Create one job; return when it was accepted."""
        text = self.options.template.read_text(encoding="utf-8").replace("NAME", name)
        async with self.session.post(self.url, json=yaml.safe_load(text)) as answer:
            if not answer.ok:
                raise SystemExit(f"cannot create {name}: {await answer.text()}")
        return time.monotonic()

    async def watch(self) -> None:
        """Follow the pods for ever."""
        url = f"{self.cluster.server}/api/v1/namespaces/{NAMESPACE}/pods?watch=1"
        async with self.session.get(url) as answer:
            async for line in answer.content:
                self.pods.hear(json.loads(line))

    async def singles(self) -> list[float]:
        """Create jobs one after the other; return seconds until each has its pods."""
        taken = []
        for number in range(SINGLES):
            name = f"one-{number}"
            created = await self.create(name)
            taken.append((await self.pods.complete([name]))[name] - created)
            await asyncio.sleep(0.3)
        return taken

    async def burst(self, count: int) -> list[float]:
        """Create jobs at once; return seconds until each has its pods, from the first request on."""
        names = [f"b{count}-{number}" for number in range(count)]
        started = time.monotonic()
        await asyncio.gather(*(self.create(name) for name in names))
        ends = await self.pods.complete(names)
        return sorted(end - started for end in ends.values())


def usage(pid: int) -> tuple[float, float]:
    """Return the largest resident size in MiB and the CPU seconds of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    times = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return peak / 1024, (int(times[11]) + int(times[12])) / TICKS


def show(title: str, seconds: Sequence[float]) -> None:
    """Print a distribution."""
    ordered = sorted(seconds)
    middle, high = statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    print(f"{title}: p50 {middle * 1000:.0f} ms, p95 {high * 1000:.0f} ms, max {ordered[-1] * 1000:.0f} ms")


async def measure(options: argparse.Namespace, cluster: Cluster, pid: int, title: str) -> None:
    """Measure on a running operator."""
    context = ssl.create_default_context(cafile=str(cluster.authority.certificate))
    pki = cluster.plan.certificates
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    connector = aiohttp.TCPConnector(ssl=context, limit=50)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 22) as session:
        bench = Bench(options, cluster, session, Pods(options.label, options.pods))
        watching = asyncio.create_task(bench.watch())
        print(f"\n{title}")
        try:
            show(f"  one job: created to {options.pods} pods, {SINGLES} times", await bench.singles())
            for count in options.bursts:
                before = usage(pid)[1]
                show(f"  {count} jobs at once: created to all pods", await bench.burst(count))
                peak, cpu = usage(pid)
                print(f"    operator: {peak:.0f} MiB at most, {cpu - before:.1f} CPU seconds")
                await asyncio.sleep(QUIET_SECONDS)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    for line in audit.shares(cluster.plan.logs / "audit.jsonl", options.user):
        print(f"  {line}")


async def run(options: argparse.Namespace, flags: Mapping[str, tuple[str, ...]], title: str) -> None:
    """Bring everything up, measure, take it down."""
    with claimed("bench") as name:
        cluster = Cluster(plan(name), programs(), flags=flags)
        try:
            cluster.up_api_server()
            cluster.up_controllers()
            cluster.kubectl.create_namespace(NAMESPACE, restricted=False)
            for file in options.setup:
                cluster.kubectl("apply", "--server-side", "-f", str(file))
            cluster.kubectl.apply(rights(options.rules))
            cluster.kubectl.apply([claim("models"), claim("datasets")], "--namespace", NAMESPACE)
            kubeconfig = cluster.kubeconfig(USER)
            process = await asyncio.create_subprocess_exec(
                *shlex.split(options.command),
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=(cluster.plan.logs / "operator.log").open("wb"),
            )
            try:
                await asyncio.sleep(options.start_seconds)
                await measure(options, cluster, process.pid, title)
            finally:
                process.terminate()
                await asyncio.wait_for(process.wait(), READY_SECONDS)
        finally:
            down(cluster.plan)


def claim(name: str) -> dict[str, Any]:
    """Describe a claim that jobs may name; nothing ever mounts it."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def rights(rules: Path) -> Iterator[dict[str, Any]]:
    """Give the operator the rules of its role, in the whole cluster."""
    role = yaml.safe_load(rules.read_text(encoding="utf-8"))
    api = "rbac.authorization.k8s.io"
    metadata = {"name": USER}
    yield {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": role["rules"]}
    yield {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": api, "kind": "User", "name": USER}],
    }


def main() -> None:
    """Run the command line."""
    manifests = ROOT / "manifests"
    ours = f"{sys.executable} -m cpufinetune_operator --trainer-image=none --no-progress --port=0"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=ours, help="starts the operator; KUBECONFIG is set")
    parser.add_argument("--template", type=Path, default=Path(__file__).with_name("operator_job.yaml"))
    resource = f"/apis/cpufinetune.dev/v1alpha1/namespaces/{NAMESPACE}/cpufinetunes"
    parser.add_argument("--resource", default=resource, help="path that objects are posted to; NAMESPACE is replaced")
    parser.add_argument("--label", default="cpufinetune.dev/job", help="label of pods that holds the object's name")
    parser.add_argument("--pods", type=int, default=4, help="pods of an object")
    parser.add_argument("--setup", type=Path, nargs="*", default=[manifests / "crd" / "cpufinetunes.yaml"])
    parser.add_argument("--rules", type=Path, default=manifests / "rbac" / "role.yaml", help="file with the rules")
    parser.add_argument("--user", default=USER, help="whose writes are counted")
    parser.add_argument("--bursts", type=int, nargs="*", default=[100, 300])
    parser.add_argument("--start-seconds", type=float, default=5.0, help="time the operator needs to start")
    options = parser.parse_args()
    asyncio.run(run(options, {}, "controller-manager with its default rate of 20 requests a second"))
    asyncio.run(run(options, RAISED, "controller-manager with 200 requests a second"))


if __name__ == "__main__":
    main()
