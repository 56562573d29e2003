"""One node: container runtime, kubelet and service proxy in a network namespace and a control group of their own."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from localcluster import cgroups, kernel, leftovers
from localcluster.components import answers
from localcluster.process import Component, end_marked
from localcluster.tools import cni_folder, find

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from localcluster.certs import Authority
    from localcluster.plan import NodePlan, Plan
    from localcluster.process import Supervisor

PAUSE = "localhost/pause:1"
CONTAINERD = """\
version = 2
root = "{store}"
state = "{folder}/run"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  # Lowering a score needs CAP_SYS_RESOURCE, which machines like containers and small virtual ones lack.
  restrict_oom_score_adj = true
  # A profile would stay in the kernel when the cluster is gone.
  disable_apparmor = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{cni}"
  conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{folder}/runc"
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that can be started, stopped, killed and removed."""

    plan: NodePlan
    cluster: Plan
    programs: Path
    authority: Authority
    server: str
    supervisor: Supervisor

    @property
    def parts(self) -> tuple[str, str, str]:
        """Names of its components, in the order they start."""
        return self.name("containerd"), self.name("kube-proxy"), self.name("kubelet")

    def name(self, program: str) -> str:
        """Name of a component of this node."""
        return f"{self.plan.name}.{program}"

    def configure(self) -> None:
        """Write certificates and configuration."""
        folder = self.plan.folder
        (folder / "cni").mkdir(parents=True, exist_ok=True)
        text = CONTAINERD.format(
            store=folder / "containerd", folder=folder, socket=self.plan.containerd, pause=PAUSE, cni=cni_folder()
        )
        (folder / "containerd.toml").write_text(text, encoding="utf-8")
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(self._cni()), encoding="utf-8")
        pair = self.authority.issue(
            f"{self.plan.name}-kubelet", f"system:node:{self.plan.name}", ["system:nodes"], [self.plan.address]
        )
        self.authority.kubeconfig(folder / "kubelet.kubeconfig", self.server, pair)
        proxy = self.authority.issue(f"{self.plan.name}-proxy", "system:kube-proxy")
        self.authority.kubeconfig(folder / "proxy.kubeconfig", self.server, proxy)
        files = {"kubelet.yaml": self._kubelet(str(pair.certificate), str(pair.key)), "proxy.yaml": self._proxy()}
        for file, content in files.items():
            (folder / file).write_text(yaml.safe_dump(content), encoding="utf-8")

    def start(self) -> None:
        """Start everything; the node registers itself and becomes ready some seconds later."""
        cgroups.create(self.plan.cgroup)
        kernel.remember()
        self.supervisor.start(self.containerd())
        for component in (self.proxy(), self.kubelet()):
            self.supervisor.spawn(component)

    def wait(self) -> None:
        """Wait until kubelet and proxy serve."""
        for component in (self.proxy(), self.kubelet()):
            self.supervisor.wait(component)

    def kill(self) -> None:
        """End everything at once, containers too, as a power cut does."""
        for part in reversed(self.parts):
            self.supervisor.stop(part, kill=True)
        # Those between runtime and containers outlive the runtime by design.
        end_marked(self.plan.folder)
        cgroups.kill(self.plan.cgroup)
        for shim in leftovers.shim_sockets(self.plan.folder):
            shim.unlink(missing_ok=True)

    def remove(self) -> None:
        """End everything and remove what the kernel holds of it."""
        self.kill()
        leftovers.unmount(self.plan.folder)
        cgroups.remove(self.plan.cgroup)
        leftovers.remove_traces(self.plan.folder)

    def containerd(self) -> Component:
        """The container runtime."""
        config = str(self.plan.folder / "containerd.toml")
        return self._component("containerd", (find("containerd"), "--config", config), lambda: _accepts(self.plan))

    def kubelet(self) -> Component:
        """The kubelet."""
        folder = self.plan.folder
        argv = (
            str(self.programs / "kubelet"),
            f"--config={folder / 'kubelet.yaml'}",
            f"--kubeconfig={folder / 'kubelet.kubeconfig'}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'kubelet-pki'}",
            f"--hostname-override={self.plan.name}",
            f"--node-ip={self.plan.address}",
        )
        return self._component("kubelet", argv, lambda: answers(self.plan.address, 10248, "/healthz"))

    def proxy(self) -> Component:
        """The proxy that makes cluster IPs work."""
        argv = (str(self.programs / "kube-proxy"), f"--config={self.plan.folder / 'proxy.yaml'}")
        return self._component("kube-proxy", argv, lambda: answers(self.plan.address, 10256, "/livez"))

    def _component(self, program: str, argv: tuple[str, ...], ready: Callable[[], bool]) -> Component:
        return Component(self.name(program), argv, ready, self.plan.namespace)

    def _cni(self) -> dict[str, object]:
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": self.plan.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.plan.folder / "addresses"),
        }
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
        return {"cniVersion": "1.0.0", "name": self.plan.namespace, "plugins": [bridge]}

    def _kubelet(self, certificate: str, key: str) -> dict[str, object]:
        folder, address = self.plan.folder, self.plan.address
        taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
        pinning: dict[str, object] = {}
        if self.plan.exclusive:
            reserved = ",".join(str(cpu) for cpu in sorted(kernel.processors() - set(self.plan.exclusive)))
            pinning = {"cpuManagerPolicy": "static", "reservedSystemCPUs": reserved}
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "healthzBindAddress": address,
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.authority.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": certificate,
            "tlsPrivateKeyFile": key,
            "clusterDomain": "cluster.local",
            "clusterDNS": [self.cluster.address],
            "containerRuntimeEndpoint": f"unix://{self.plan.containerd}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.plan.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(folder / "pod-logs"),
            "volumePluginDir": str(folder / "volume-plugins"),
            "registerWithTaints": [taint] if self.plan.tainted else [],
            # Small leases make a lost node show within seconds; a fairly full disk must not evict a test's pods.
            "nodeLeaseDurationSeconds": 8,
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            **pinning,
        }

    def _proxy(self) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": self.plan.name,
            "bindAddress": self.plan.address,
            "healthzBindAddress": f"{self.plan.address}:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "clientConnection": {"kubeconfig": str(self.plan.folder / "proxy.kubeconfig")},
            "clusterCIDR": self.plan.pods,
            # These sysctls are the machine's, not the namespace's.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }


def _accepts(plan: NodePlan) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(plan.containerd))
        except OSError:
            return False
    return True
