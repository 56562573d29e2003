"""The programs of the control plane: how each is called, and when it is ready."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localcluster.process import Component

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from localcluster.certs import Authority, Pair
    from localcluster.plan import Plan

API_PORT = 6443
PROBE_SECONDS = 2.0
HTTP_OK = 200
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""
COREFILE = """\
.:53 {{
  bind {address}
  errors
  ready {loopback}:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 5
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Builds the control plane's components.

    Attributes:
        address: where the API server listens.
        flags: further flags by program, such as `{"kube-controller-manager": ["--kube-api-qps=200"]}`.
    """

    cluster: Plan
    programs: Path
    authority: Authority
    address: str
    flags: Mapping[str, tuple[str, ...]]

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.address}:{API_PORT}"

    def etcd(self) -> Component:
        """The store, on a loopback address: pods cannot reach it, and the machine's other users lack a certificate."""
        host, pair, trusted = self.cluster.loopback, self.authority.pair("etcd"), self.authority.certificate
        client, peer = f"https://{host}:2379", f"https://{host}:2380"
        flags = [
            f"--data-dir={self.cluster.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # A test cluster need not survive a power cut.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        for side in ("", "peer-"):
            files = f"--{side}cert-file={pair.certificate}", f"--{side}key-file={pair.key}"
            flags += [*files, f"--{side}trusted-ca-file={trusted}", f"--{side}client-cert-auth"]
        return self._component("etcd", tuple(flags), lambda: answers(host, 2379, "/health", self._context(pair)))

    def api_server(self, admin: Pair, serving: Pair) -> Component:
        """The API server, with audit log, and the admission plug-in that some distributions turn on."""
        pki, folder = self.authority, self.cluster.folder
        (folder / "audit.yaml").write_text(AUDIT_POLICY, encoding="utf-8")
        store = pki.pair("etcd")
        flags = (
            f"--etcd-servers=https://{self.cluster.loopback}:2379",
            f"--etcd-cafile={pki.certificate}",
            f"--etcd-certfile={store.certificate}",
            f"--etcd-keyfile={store.key}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            # Loopback addresses are no valid endpoints: an API server that runs alone has none.
            f"--endpoint-reconciler-type={'none' if self.address.startswith('127.') else 'lease'}",
            f"--secure-port={API_PORT}",
            f"--client-ca-file={pki.certificate}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--kubelet-client-certificate={admin.certificate}",
            f"--kubelet-client-key={admin.key}",
            f"--kubelet-certificate-authority={pki.certificate}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki.tokens}",
            f"--service-account-signing-key-file={pki.tokens}",
            f"--service-cluster-ip-range={self.cluster.services}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            # Pods leave a lost node after seconds instead of five minutes.
            "--default-not-ready-toleration-seconds=10",
            "--default-unreachable-toleration-seconds=10",
            f"--audit-policy-file={folder / 'audit.yaml'}",
            f"--audit-log-path={self.cluster.logs / 'audit.jsonl'}",
            "--profiling=false",
        )
        return self._component("kube-apiserver", flags, self.probe(admin))

    def probe(self, admin: Pair) -> Callable[[], bool]:
        """Tell whether the API server says that it is ready."""
        context = self._context(admin)
        return lambda: answers(self.address, API_PORT, "/readyz", context)

    def _context(self, pair: Pair) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def controller_manager(self, kubeconfig: Path) -> Component:
        """The controllers; nodes count as lost after seconds."""
        host = self.cluster.loopback
        flags = (
            *self._client_flags(kubeconfig),
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.authority.tokens}",
            f"--root-ca-file={self.authority.certificate}",
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=10s",
        )
        return self._component("kube-controller-manager", flags, lambda: listens(host, 10257))

    def scheduler(self, kubeconfig: Path) -> Component:
        """The scheduler."""
        host = self.cluster.loopback
        flags = self._client_flags(kubeconfig)
        return self._component("kube-scheduler", flags, lambda: listens(host, 10259))

    def dns(self, kubeconfig: Path) -> Component:
        """CoreDNS as a process of the machine, on the switch."""
        file = self.cluster.folder / "Corefile"
        host = self.cluster.loopback
        text = COREFILE.format(address=self.address, loopback=host, kubeconfig=kubeconfig)
        file.write_text(text, encoding="utf-8")
        return self._component("coredns", ("-conf", str(file)), lambda: answers(host, 8181, "/ready"))

    def _client_flags(self, kubeconfig: Path) -> tuple[str, ...]:
        """Flags of a program that works for the API server: one of its kind, served on the loopback address."""
        return (
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={self.cluster.loopback}",
            "--leader-elect=false",
        )

    def _component(self, name: str, flags: tuple[str, ...], ready: Callable[[], bool]) -> Component:
        argv = (str(self.programs / name), *flags, *self.flags.get(name, ()))
        return Component(name, argv, ready)


def listens(host: str, port: int) -> bool:
    """Tell whether somebody accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=PROBE_SECONDS):
            return True
    except OSError:
        return False


def answers(host: str, port: int, path: str, context: ssl.SSLContext | None = None) -> bool:
    """Tell whether a request is answered with 200."""
    if context is None:
        connection = http.client.HTTPConnection(host, port, timeout=PROBE_SECONDS)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=PROBE_SECONDS, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == HTTP_OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
