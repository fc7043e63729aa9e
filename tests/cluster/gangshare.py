"""Gangshare on a real cluster: our processes with the identities, rights and policies of the manifests."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from extender.cli import scheduler_config
from protos.contract import allocation, names
from tests.cluster import host, images
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.controlplane import Scheduler
from tests.cluster.pki import Authority
from tests.cluster.process import Process, wait_for

ROOT = Path(__file__).parents[2]
NAMESPACE = "gangshare-system"
Layout = Literal["own", "shared", "gpushare"]
MANIFESTS: dict[Layout, str] = {"own": "base", "shared": "overlays/shared", "gpushare": "overlays/gpushare"}
ROLLED_OUT = ("Deployment", "DaemonSet", "ConfigMap", "Service", "PodDisruptionBudget")
"""Kinds of the manifests that run the processes in pods; here they are processes of the harness."""
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def get(port: int, path: str) -> str:
    """The text of a path of a status port; raises OSError unless it answers 200."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
        text: str = response.read().decode()
    return text


class Pair:
    """A kube-scheduler and the extender beside it, on a machine of their own by name."""

    def __init__(self, shared: Gangshare, name: str) -> None:
        self.name = name
        self.verbs, self.status = host.free_port(), host.free_port()
        self._shared = shared
        token = shared.cluster.plane.token(NAMESPACE, "gangshare-scheduler")
        self.credential = f"JTI={_claims(token)['jti']}"
        """What the audit log says in user.extra of requests with this pair's token."""
        self.kubeconfig = shared.cluster.plane.token_kubeconfig(f"{name}-pair", token)
        argv = [sys.executable, "-m", "extender", "extender", f"--kubeconfig={self.kubeconfig}"]
        argv += [f"--listen=127.0.0.1:{self.verbs}", f"--status-listen=127.0.0.1:{self.status}"]
        argv += ["--log-format=json", "--log-level=debug", *shared.extender_args, *shared.tls_args()]
        self.extender: Process = shared.cluster.process(f"{name}-extender", argv, hostname=name, cwd=ROOT)
        self.scheduler: Scheduler | None = None

    def start(self) -> Pair:
        self.start_extender()
        config = self._shared.scheduler_config(self)
        self.scheduler = self._shared.cluster.scheduler(f"{self.name}-scheduler", config, hostname=self.name)
        return self

    def start_extender(self) -> None:
        self.extender.start()
        self.extender.wait_until(lambda: get(self.status, "/readyz"), 60, f"ready {self.extender.name}")

    def inspect(self) -> Json:
        """The books, as the status port tells them."""
        found: Json = json.loads(get(self.status, "/inspect"))
        return found

    def metric(self, name: str) -> float:
        """The sum over all labels of one metric."""
        lines = get(self.status, "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


class Gangshare:
    """Pairs of scheduler and extender, usually one, and a plugin on each node that serves a fake machine."""

    def __init__(
        self,
        cluster: Cluster,
        machines: Mapping[str, str | Mapping[str, Any]],
        *,
        policies: bool = True,
        layout: Layout = "own",
        pairs: Sequence[str] = ("one",),
        election: Mapping[str, str] | None = None,
        extender_args: Sequence[str] = (),
        plugin_args: Sequence[str] | Mapping[str, Sequence[str]] = (),
        components: Sequence[str] = (),
        tls: bool = False,
    ) -> None:
        """`machines` says which fake machine each node is: a shipped profile's name, or a profile.

        `components` of the manifests are applied too. `pairs` are host names; `election` sets durations of the
        schedulers' leaderElection. `tls`: a kube-scheduler shows a certificate to its extender. `plugin_args`: of
        all plugins, or by node.
        """
        self.tls = Authority(cluster.dir / "verbs-pki") if tls else None
        self.cluster, self.layout, self.election = cluster, layout, dict(election or {})
        self.extender_args, self.plugin_args = extender_args, plugin_args
        self.apply_manifests(policies=policies, components=components)
        self.profiles = {node: self._profile(node, machine) for node, machine in machines.items()}
        self.plugins = {node: self._plugin(node) for node in machines}
        self.pairs = {name: Pair(self, name) for name in pairs}
        self.pair = self.pairs[pairs[0]]

    def start(self) -> Gangshare:
        for plugin in self.plugins.values():
            plugin.start()
        for pair in self.pairs.values():
            pair.start()
        mem = scheduler_config.defaults(self.layout).resources.mem
        nodes = ", ".join(self.plugins)
        wait_for(lambda: all(self.offers(node, mem) for node in self.plugins), 60, f"{mem} on {nodes}")
        return self

    def stop(self) -> None:
        """End our processes; the cluster stays."""
        ours = [*(pair.extender for pair in self.pairs.values()), *self.plugins.values()]
        for process in ours:
            process.terminate()
        for process in ours:
            process.stop()
        for pair in self.pairs.values():
            if pair.scheduler is not None:
                pair.scheduler.process.stop()
        for node in self.plugins:
            patch = {"metadata": {"annotations": {names.GPUS: None}}}
            self.cluster.api.patch(f"/api/v1/nodes/{node}", patch)

    def reboot(self, node: str) -> None:
        """The node loses everything that runs, and starts again from its disk, our plugin with it."""
        self.cluster.nodes[node].reboot()
        self.plugins[node].kill()  # dead already: this reaps
        self.plugins[node] = self._plugin(node).start()

    def add(self, node: str, machine: str | Mapping[str, Any]) -> None:
        """A plugin on a node that has just joined, or that another machine of its name has replaced."""
        self.profiles[node] = self._profile(node, machine)
        self.plugins[node] = self._plugin(node).start()

    def apply_manifests(self, *, policies: bool, components: Sequence[str] = ()) -> None:
        text = self.cluster.kubectl("kustomize", str(kustomization(self.cluster, MANIFESTS[self.layout], *components)))
        objects = [one for one in yaml.safe_load_all(text) if one and one["kind"] not in ROLLED_OUT]
        wanted = [one for one in objects if policies or one["kind"] not in POLICIES]
        first = [one for one in wanted if one["kind"] == "Namespace"]
        self.cluster.apply(first)
        self.cluster.apply([one for one in wanted if one not in first])

    def scheduler_config(self, pair: Pair) -> dict[str, Any]:
        """The configuration of a pair's kube-scheduler; the cluster's own one has its own identity."""
        own = self.layout == "own"
        kubeconfig = pair.kubeconfig if own else self.cluster.plane.user_kubeconfig("system:kube-scheduler")
        options = msgspec.structs.replace(
            scheduler_config.defaults(self.layout),
            extender_url=f"http://127.0.0.1:{pair.verbs}",
            kubeconfig=str(kubeconfig),
            tls_files=str(self.tls.ca.certificate.parent) if self.tls is not None else "",
        )
        config = scheduler_config.configuration(self.layout, options)
        return config | {"leaderElection": config["leaderElection"] | self.election}

    def tls_args(self) -> list[str]:
        """What the extender is told, once the certificates of both sides are there."""
        if self.tls is None:
            return []
        self.tls.issue("tls", user="kube-scheduler")
        ours = self.tls.issue("extender", user="gangshare", sans=["IP:127.0.0.1"])
        files = {"cert": ours.certificate, "key": ours.key, "client-ca": self.tls.ca.certificate}
        return [f"--verbs-{flag}={path}" for flag, path in files.items()]

    def _profile(self, node: str, machine: str | Mapping[str, Any]) -> Path:
        path = self.cluster.dir / f"{node}-machine.yaml"
        if isinstance(machine, str):
            shutil.copy(ROOT / "deviceplugin" / "profiles" / f"{machine}.yaml", path)
        else:
            path.write_text(yaml.safe_dump(dict(machine)))
        return path

    def _plugin(self, node: str) -> Process:
        kubeconfig = self.cluster.account_kubeconfig(NAMESPACE, "gangshare-plugin", node=node)
        argv = [sys.executable, "-m", "deviceplugin", f"--node-name={node}", f"--fake={self.profiles[node]}"]
        more = self.plugin_args.get(node, ()) if isinstance(self.plugin_args, Mapping) else self.plugin_args
        argv += [f"--kubeconfig={kubeconfig}", "--metrics-port=0", "--log-format=json", *more]
        return self.cluster.process("plugin", argv, node=node, cwd=ROOT)

    def offers(self, node: str, resource: str = names.GPU_MEM) -> int:
        """Allocatable of a resource on the node, 0 while it or the inventory is not there."""
        found = self.cluster.api.get(f"/api/v1/nodes/{node}")
        return int(found["status"]["allocatable"].get(resource, 0)) if names.GPUS in _annotations(found) else 0

    def run(self, pod: Json) -> Json:
        """Create the pod and wait until it runs."""
        self.cluster.create_pod(pod)
        return self.cluster.wait_phase(pod["metadata"]["name"], "Running")

    def visible(self, pod: str, container: str = "main") -> list[str]:
        """The GPUs that the container really sees, from what it printed."""

        def printed() -> str:
            lines = self.cluster.pod_log(pod, container=container).splitlines()
            found = [line for line in lines if line.startswith(f"{names.VISIBLE_DEVICES}=")]
            return found[0] if found else ""

        line = wait_for(printed, 30, f"{names.VISIBLE_DEVICES} in the log of {pod}/{container}")
        return line.partition("=")[2].split(",")

    def annotated(self, pod: Json) -> dict[str, list[str]]:
        """The GPUs that the pod's annotation names, by container."""
        found = allocation.decode(_annotations(pod).get(names.ALLOCATION))
        assert found is not None, f"{pod['metadata']['name']} has no allocation"
        return {name: [share.uuid for share in shares] for name, shares in found.containers.items()}

    def check_books(self, pair: Pair | None = None) -> None:
        """What every running container sees = its annotation = the books, and no GPU holds more than it has."""
        told = (pair or self.pair).inspect()
        booked = {pod["uid"]: pod["allocation"] for pod in told["pods"] if pod["state"] == "bound"}
        for pod in self.cluster.pods("default"):
            if pod["status"]["phase"] != "Running" or names.ALLOCATION not in _annotations(pod):
                continue
            annotated = self.annotated(pod)
            name = pod["metadata"]["name"]
            in_books = booked[pod["metadata"]["uid"]]["containers"]
            assert {c: [share["uuid"] for share in given] for c, given in in_books.items()} == annotated, name
            for container, uuids in annotated.items():
                assert sorted(self.visible(name, container)) == sorted(uuids), f"{name}/{container}"
        for node in told["nodes"]:
            for gpu in node["gpus"]:
                assert gpu["memUsed"] <= gpu["mem"], gpu
                assert not gpu["whole"] or len(gpu["pods"]) == 1, gpu
        assert told["problems"]["overused"] == 0


def gate_policy(minor: int) -> str:
    """The component with the policy that gates pods, for this minor version of Kubernetes; "" where there is none."""
    return _mutating("gate-policy", minor)


def void_policy(minor: int) -> str:
    """The same for the policy that tells containers without GPUs that they see none."""
    return _mutating("void-policy", minor)


def memory_units(minor: int) -> str:
    """The same for the policy that makes numbers of amounts of GPU memory."""
    return _mutating("memory-units", minor)


def _mutating(component: str, minor: int) -> str:
    return component if minor >= 36 else f"{component}-v1beta1" if minor >= 34 else ""


def beta_policies(minor: int) -> list[str]:
    """What its API server has to be told for that."""
    group = "admissionregistration.k8s.io/v1beta1"
    flags = ["--feature-gates=MutatingAdmissionPolicy=true", f"--runtime-config={group}=true"]
    return flags if gate_policy(minor).endswith("beta1") else []


def kustomization(cluster: Cluster, folder: str, *components: str) -> Path:
    """A folder of the manifests, with these components."""
    if not components:
        return ROOT / "manifests" / folder
    made = cluster.dir / "-".join(("kustomize", *components))
    made.mkdir(exist_ok=True)
    beside = os.path.relpath(ROOT / "manifests", made)
    parts = {"resources": [f"{beside}/{folder}"], "components": [f"{beside}/components/{one}" for one in components]}
    (made / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return made


def _claims(token: str) -> Json:
    """What a ServiceAccount's token says (RFC 7519)."""
    payload = token.split(".")[1]
    claims: Json = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return claims


def _annotations(found: Json) -> dict[str, str]:
    return found["metadata"].get("annotations") or {}


def a_gpu_pod(
    name: str,
    *containers: Mapping[str, Any],
    mem: int = 0,
    slices: int = 0,
    whole: int = 0,
    annotations: Mapping[str, str] | None = None,
    script: str = "sleep infinity",
    **spec: Any,
) -> Json:
    """A pod of our scheduler whose containers (by default one, `main`) print what they see, then run `script`."""
    asked = list(containers) or [a_gpu_container("main", mem=mem, slices=slices, whole=whole, script=script)]
    body: Json = {
        "schedulerName": names.PROFILE, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False, "containers": asked, **spec,
    }  # fmt: skip
    metadata: Json = {"name": name, "namespace": "default", "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def a_gpu_container(
    name: str, *, mem: int = 0, slices: int = 0, whole: int = 0, script: str = "sleep infinity", **fields: Any
) -> Json:
    """A container that prints its GPU variables, then runs `script`."""
    asked = {names.GPU_MEM: mem, names.GPU_SLICE: slices, names.WHOLE_GPU: whole}
    limits = {key: str(amount) for key, amount in asked.items() if amount}
    command = [
        "sh",
        "-c",
        f"env | while read line; do case $line in NVIDIA*|GANGSHARE*|ALIYUN*) echo $line;; esac; done; {script}",
    ]
    return {"name": name, "image": images.BUSYBOX, "command": command, "resources": {"limits": limits}, **fields}
