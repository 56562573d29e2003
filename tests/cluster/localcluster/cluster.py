"""A cluster: brought up, changed, broken, healed and taken down."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster import kernel, leftovers, network, storage, store
from localcluster.certs import Authority, Pair
from localcluster.components import ControlPlane
from localcluster.kubectl import Kubectl
from localcluster.node import Node
from localcluster.plan import HOME, NODE, ClusterError, NodePlan, Plan, write
from localcluster.process import Supervisor, end_marked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

READY_SECONDS = 60
FREE_BYTES = 512 << 20
NAMESPACES = Path("/run/netns")


@dataclass(slots=True)
class Cluster:
    """The cluster that `plan` describes.

    Attributes:
        programs: folder of the Kubernetes programs.
        archives: images that every node has.
        flags: further flags of control plane programs, by program.
    """

    plan: Plan
    programs: Path
    archives: Sequence[Path] = ()
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)

    @property
    def supervisor(self) -> Supervisor:
        """What starts and stops this cluster's processes."""
        return Supervisor(self.plan.folder / "pids", self.plan.logs)

    @property
    def authority(self) -> Authority:
        """What issues this cluster's certificates."""
        return Authority(self.plan.certificates)

    @property
    def kubectl(self) -> Kubectl:
        """The cluster's kubectl, as administrator."""
        return Kubectl(self.programs / "kubectl", self.plan.kubeconfig)

    def up_api_server(self, *, address: str | None = None) -> None:
        """Start etcd and the API server alone, by default on a loopback address."""
        address = address or self.plan.loopback
        self._begin()
        control, admin, serving = self._control_plane(address)
        self.supervisor.spawn(control.etcd())
        self.supervisor.start(control.api_server(admin, serving))

    def up_controllers(self) -> None:
        """Start the controller-manager beside an API server: sets get pods, and owned objects are collected."""
        user = self._user("controller-manager", "system:kube-controller-manager")
        self.supervisor.start(self._control_plane_of_record().controller_manager(user))

    def up(self, nodes: Sequence[NodePlan]) -> None:
        """Bring everything up; a cluster of this name that was left behind is removed first."""
        self._begin(nodes)
        network.create_switch(self.plan)
        control, admin, serving = self._control_plane(self.plan.address)
        self.supervisor.spawn(control.etcd())
        self.supervisor.spawn(control.api_server(admin, serving))
        for node in nodes:
            self._create(node)
        self.supervisor.wait(control.api_server(admin, serving))
        users = {name: self._user(name, f"system:kube-{name}") for name in ("controller-manager", "scheduler")}
        rest = [control.controller_manager(users["controller-manager"]), control.scheduler(users["scheduler"])]
        rest.append(control.dns(self.plan.kubeconfig))
        for component in rest:
            self.supervisor.spawn(component)
        for started in self.nodes.values():
            started.start()
        network.route(nodes)
        for component in rest:
            self.supervisor.wait(component)
        self.kubectl.apply([storage.storage_class()])
        for node in nodes:
            self._finish(node)

    def add_node(self, node: NodePlan) -> None:
        """Add a node to a running cluster."""
        self._record([*(one.plan for one in self.nodes.values()), node])
        self._create(node)
        self.nodes[node.name].start()
        network.route([one.plan for one in self.nodes.values()])
        self._finish(node)

    def stop_kubelet(self, name: str) -> None:
        """Stop a node's kubelet: the node is soon not ready, its containers go on."""
        self.supervisor.stop(self.nodes[name].name("kubelet"))

    def start_node(self, name: str) -> None:
        """Start what does not run of a node, and plug it in."""
        node = self.nodes[name]
        network.heal_node(node.plan, [one.plan for one in self.nodes.values()])
        node.start()
        node.wait()

    def kill_node(self, name: str) -> None:
        """End a node with its containers and pull its cable."""
        network.cut_node(self.nodes[name].plan)
        self.nodes[name].kill()

    def cut_pod(self, namespace: str, pod: str) -> None:
        """Drop all packets from and to a pod."""
        status = self.kubectl.get("--namespace", namespace, "pod", pod)
        network.cut_pod(self.nodes[status["spec"]["nodeName"]].plan, status["status"]["podIP"])

    def heal_pods(self) -> None:
        """Undo every `cut_pod`."""
        for node in self.nodes.values():
            network.heal_pods(node.plan)

    def pause_api_server(self) -> None:
        """Stop the API server in its tracks: connections stay open, nothing is answered."""
        self.supervisor.signal("kube-apiserver", signal.SIGSTOP)

    def resume_api_server(self) -> None:
        """Let it go on."""
        self.supervisor.signal("kube-apiserver", signal.SIGCONT)

    def restart_api_server(self) -> None:
        """Kill the API server and start it again: watches break."""
        self.supervisor.stop("kube-apiserver", kill=True)
        control = self._control_plane_of_record()
        admin, serving = self.authority.pair("admin"), self.authority.pair("apiserver")
        self.supervisor.start(control.api_server(admin, serving))

    def load(self, archive: Path) -> None:
        """Import an image into every node."""
        for node in self.nodes.values():
            store.load(node.plan.containerd, archive)

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig for a user, who may do what is bound to this name and these groups."""
        return self._user(user.replace(":", "-"), user, groups)

    def _begin(self, nodes: Sequence[NodePlan] = ()) -> None:
        down(self.plan)
        disk = shutil.disk_usage(HOME)
        # Below the second share, kubelets let no pods in.
        needed = max(FREE_BYTES, disk.total // 100 * 2 if nodes else 0)
        if disk.free < needed:
            text = f"a cluster needs {needed >> 20} MiB of room below {HOME}, and there are {disk.free >> 20} MiB"
            raise ClusterError(text)
        self.plan.folder.mkdir(parents=True, mode=0o700)
        self._record(nodes)

    def _create(self, plan: NodePlan) -> None:
        node = Node(plan, self.plan, self.programs, self.authority, self.server, self.supervisor)
        network.create_node(plan)
        store.fill(plan.folder / "containerd", self.archives)
        node.configure()
        self.nodes[plan.name] = node

    def _finish(self, plan: NodePlan) -> None:
        self.nodes[plan.name].wait()
        self.kubectl.apply(storage.prepare(plan, [f"v{number}" for number in range(storage.VOLUMES)]))
        self.kubectl.wait(f"node {plan.name} is ready", lambda: self.ready(plan.name), READY_SECONDS)

    def ready(self, name: str) -> bool:
        """Tell whether a node is ready."""
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        done = self.kubectl.attempt("get", "node", name, "--output", f"jsonpath={path}")
        return done.stdout == "True"

    def _control_plane(self, address: str) -> tuple[ControlPlane, Pair, Pair]:
        authority = self.authority
        authority.create()
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        serving = authority.issue("apiserver", "kube-apiserver", (), (address, self.plan.service_address, *names))
        admin = authority.issue("admin", "admin", ["system:masters"])
        authority.issue("etcd", "etcd", (), [self.plan.loopback])
        control = ControlPlane(self.plan, self.programs, authority, address, self.flags)
        (self.plan.folder / "server").write_text(address, encoding="utf-8")
        authority.kubeconfig(self.plan.kubeconfig, control.server, admin)
        return control, admin, serving

    def _control_plane_of_record(self) -> ControlPlane:
        address = (self.plan.folder / "server").read_text(encoding="utf-8")
        return ControlPlane(self.plan, self.programs, self.authority, address, self.flags)

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._control_plane_of_record().server

    def _user(self, file: str, user: str, groups: Sequence[str] = ()) -> Path:
        pair = self.authority.issue(file, user, groups)
        return self.authority.kubeconfig(self.plan.folder / f"{file}.kubeconfig", self.server, pair)

    def _record(self, nodes: Sequence[NodePlan] = ()) -> None:
        record = [[node.name, node.index, list(node.exclusive), node.tainted] for node in nodes]
        write(self.plan.folder / "nodes.json", json.dumps(record))


def down(plan: Plan) -> None:
    """Remove a cluster and all that it left on the machine; one that is not there is fine."""
    supervisor = Supervisor(plan.folder / "pids", plan.logs)
    nodes = recorded(plan)
    for name in supervisor.names():
        if "." not in name:
            # At once: a graceful end of the API server takes ten seconds, and nothing is kept.
            supervisor.stop(name, kill=True)
    for node in nodes:
        Node(node, plan, plan.folder, Authority(plan.certificates), "", supervisor).remove()
        network.remove_node(node)
    end_marked(plan.folder)
    network.remove_switch(plan)
    leftovers.unmount(plan.folder)
    if plan.folder.exists():
        shutil.rmtree(plan.folder)
    kernel.restore()


def recorded(plan: Plan) -> list[NodePlan]:
    """Nodes of a cluster that is up or was left behind, also if its folder is gone."""
    try:
        record = json.loads((plan.folder / "nodes.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = (file.name.removeprefix(f"cft-{plan.name}-") for file in NAMESPACES.glob(f"cft-{plan.name}-*"))
        record = [[name, 0, [], False] for name in names if NODE.fullmatch(name)]
    return [plan.node(name, index, tuple(cpus), tainted=tainted) for name, index, cpus, tainted in record]


def attach(plan: Plan, programs: Path) -> Cluster:
    """Return the handle of a cluster that another process brought up.

    Raises:
        ClusterError: there is none.
    """
    if not plan.kubeconfig.exists():
        there = ", ".join(sorted(file.parent.name for file in HOME.glob("*/kubeconfig"))) or "none"
        raise ClusterError(f"there is no cluster {plan.name!r}; clusters that are there: {there}")
    cluster = Cluster(plan, programs)
    for node in recorded(plan):
        cluster.nodes[node.name] = Node(node, plan, programs, cluster.authority, cluster.server, cluster.supervisor)
    return cluster
