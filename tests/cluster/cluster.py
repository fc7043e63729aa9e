"""A whole cluster on this machine: what tests hold in their hands."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import assets, images
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.controlplane import ControlPlane, Scheduler
from tests.cluster.node import Node
from tests.cluster.process import HarnessError, Process, wait_for
from tests.cluster.run import Run

Manifests = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Cluster:
    """Made by `Cluster.up()`, ended by `down()` or by leaving the `with` block."""

    def __init__(self, run: Run, plane: ControlPlane, nodes: Sequence[Node]) -> None:
        self.run = run
        self.plane = plane
        self.nodes = {node.name: node for node in nodes}
        self.api: Api = plane.api
        self.kubeconfig = plane.admin_kubeconfig

    @classmethod
    def up(
        cls,
        nodes: int = 2,
        *,
        version: str | None = None,
        in_cluster: bool = False,
        scheduler: bool = True,
        apiserver_args: Sequence[str] = (),
        controller_manager_args: Sequence[str] = (),
        kubelet_config: Mapping[str, Any] | None = None,
        kubelet_args: Sequence[str] = (),
        containerd: Path | None = None,
    ) -> Cluster:
        """A cluster with `nodes` ready nodes (node-1, node-2, …) and the stock scheduler.

        `containerd` is the folder of another one than the machine's, which then knows CDI devices.
        `in_cluster` lets pods reach the API server at its service address and turns ServiceAccount admission on.
        Raises MissingAsset when this machine cannot, HarnessError when a part does not come up; nothing is left then.
        """
        provided = assets.provide(version)
        run = Run()
        try:
            plane = ControlPlane(
                run,
                provided,
                in_cluster=in_cluster,
                apiserver_args=apiserver_args,
                controller_manager_args=controller_manager_args,
            )
            made = [
                Node(plane, i + 1, config=kubelet_config, args=kubelet_args, containerd=containerd)
                for i in range(nodes)
            ]
            _bring_up(plane, made, scheduler=scheduler)
        except BaseException:
            run.close()
            raise
        return cls(run, plane, made)

    def add_node(self, *, kubelet_config: Mapping[str, Any] | None = None, kubelet_args: Sequence[str] = ()) -> Node:
        """One more ready node."""
        node = Node(self.plane, len(self.nodes) + 1, config=kubelet_config, args=kubelet_args)
        self.nodes[node.name] = node
        node.boot()
        node.join()
        node.wait_ready()
        return node

    def down(self) -> None:
        self.run.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *failure: object) -> None:
        self.down()

    @property
    def version(self) -> str:
        return self.plane.assets.version

    @property
    def dir(self) -> Path:
        """A folder of this run for files of one's own."""
        return self.run.dir

    def log(self, name: str) -> str:
        """The log of a process by its name: `kube-apiserver`, `node-1-kubelet`, …"""
        return (self.run.logs / f"{name}.log").read_text(errors="replace")

    def process(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        hostname: str | None = None,
        node: str | None = None,
    ) -> Process:
        """A process under test, not started yet, ended by SIGTERM with the cluster; on `node` if one is named."""
        if node is not None:
            return self.nodes[node].process(name, argv, guest=True, env=env, cwd=cwd)
        return self.run.process(name, argv, guest=True, env=env, cwd=cwd, hostname=hostname)

    def scheduler(self, name: str, config: Mapping[str, Any] | None = None, **options: Any) -> Scheduler:
        """A further kube-scheduler; see ControlPlane.scheduler."""
        return self.plane.scheduler(name, config, **options)

    def account_kubeconfig(self, namespace: str, account: str, *, node: str | None = None) -> Path:
        """A kubeconfig with a ServiceAccount's token; with `node` it says which node its bearer runs on."""
        token = self._account_token(namespace, account, node)
        return self.plane.token_kubeconfig("-".join(filter(None, (namespace, account, node))), token)

    def account_api(self, namespace: str, account: str, *, node: str | None = None) -> Api:
        """The API server as a ServiceAccount sees it; with `node` its token says which node its bearer runs on."""
        return Api(self.plane.port, self.plane.ca, token=self._account_token(namespace, account, node))

    def _account_token(self, namespace: str, account: str, node: str | None) -> str:
        bound = None if node is None else self._node_anchor(namespace, account, node)
        return self.plane.token(namespace, account, bound_to=bound)

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """What kubectl prints; raises HarnessError with what it says when it fails."""
        return self.kubectl_says(*arguments, stdin=stdin, kubeconfig=kubeconfig)[0]

    def kubectl_says(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> tuple[str, str]:
        """What kubectl prints, and its warnings; raises HarnessError with what it says when it fails."""
        command: list[str | Path] = [
            self.plane.assets.program("kubectl"),
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            *arguments,
        ]
        env = {**os.environ, "KUBECACHEDIR": str(self.dir / "kubectl-cache")}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False, env=env)
        if done.returncode:
            raise HarnessError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout, done.stderr

    def apply(self, manifests: Manifests, *, server_side: bool = True) -> str:
        """Apply YAML text, a file, a kustomize folder, or objects."""
        options = ["apply", *(["--server-side"] if server_side else [])]
        if isinstance(manifests, Path):
            kustomized = manifests.is_dir() and (manifests / "kustomization.yaml").exists()
            return self.kubectl(*options, "--kustomize" if kustomized else "--filename", str(manifests))
        if not isinstance(manifests, str):
            objects = [manifests] if isinstance(manifests, Mapping) else list(manifests)
            manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self.kubectl(*options, "--filename", "-", stdin=manifests)

    def create_pod(self, pod: Json) -> Json:
        """POST a pod as it is."""
        namespace = pod["metadata"].setdefault("namespace", "default")
        return self.api.post(f"/api/v1/namespaces/{namespace}/pods", pod)

    def pods(self, namespace: str | None = None, selector: str = "") -> list[Json]:
        path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        return self.api.items(path, **({"labelSelector": selector} if selector else {}))

    def pod(self, name: str, namespace: str = "default") -> Json:
        return self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def wait_phase(self, name: str, phase: str, *, namespace: str = "default", timeout: float = 60) -> Json:
        """The pod once its phase is `phase` (Running, Succeeded, Failed)."""

        def in_phase() -> Json | None:
            pod = self.pod(name, namespace)
            assert pod["status"]["phase"] == phase, pod["status"]
            return pod

        return wait_for(in_phase, timeout, f"pod {namespace}/{name} that is {phase}")

    def delete_pods(self, namespace: str = "default", *, timeout: float = 60) -> None:
        """Delete every pod of a namespace at once and wait until all are really gone."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        for pod in self.api.items(path):
            try:
                self.api.delete(f"{path}/{pod['metadata']['name']}", gracePeriodSeconds="1")
            except ApiError as error:
                if error.status != 404:
                    raise
        wait_for(lambda: not self.pods(namespace), timeout, f"namespace {namespace} without pods")

    def pod_log(self, name: str, namespace: str = "default", **query: str) -> str:
        """What a container printed, by way of the API server and the kubelet; `container=` names one of several."""
        return self.api.text(f"/api/v1/namespaces/{namespace}/pods/{name}/log", **query)

    def events(self, name: str, namespace: str = "default") -> list[Json]:
        """The Events about one object."""
        path = f"/api/v1/namespaces/{namespace}/events"
        return self.api.items(path, fieldSelector=f"involvedObject.name={name}")

    def _node_anchor(self, namespace: str, account: str, node: str) -> Json:
        """What a token is bound to so that it names its node: the node itself, before 1.31 a pod there."""
        if self.plane.assets.minor >= 31:
            return self.api.get(f"/api/v1/nodes/{node}") | {"kind": "Node"}
        name = f"{account}-on-{node}"
        if any(pod["metadata"]["name"] == name for pod in self.pods(namespace)):
            return self.pod(name, namespace)
        pod = a_pod(name, "sleep infinity", node=node)
        pod["metadata"]["namespace"] = namespace
        pod["spec"] |= {"serviceAccountName": account, "automountServiceAccountToken": False}
        return self.create_pod(pod)


def a_pod(name: str, script: str, *, node: str | None = None) -> Json:
    """A busybox pod that runs `script` once; `node` binds it there without a scheduler."""
    container = {"name": "main", "image": images.BUSYBOX, "command": ["sh", "-c", script]}
    spec: Json = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    if node is not None:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _bring_up(plane: ControlPlane, nodes: Sequence[Node], *, scheduler: bool) -> None:
    plane.launch()
    for node in nodes:
        node.boot()
    plane.wait_ready()
    for node in nodes:
        node.join()
    if scheduler:
        plane.scheduler()
    for node in nodes:
        node.wait_ready()
