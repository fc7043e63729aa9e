"""The Helm release of Gangshare, by the commands that the pages tell, run where users run them: in a clone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from protos.contract import names
from tests.cluster import builds
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.unit.docs import typed

CHART = "manifests/helm/gangshare"
_AUTOMATIC = "kube-aggregator.kubernetes.io/automanaged"


class Terminal:
    """Where a user types the commands of the pages: in a clone, with kubectl and further programs at hand."""

    def __init__(self, cluster: Cluster, **programs: Path) -> None:
        self.cluster = cluster
        self.words: dict[str, str] = {}
        """What stands for the placeholders of the pages."""
        self.programs = cluster.dir / "programs"
        self.programs.mkdir()
        for name, program in {"kubectl": cluster.plane.assets.program("kubectl"), **programs}.items():
            (self.programs / name).symlink_to(program)
        homes = {f"HELM_{kind}_HOME": str(cluster.dir / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
        self.env = {**os.environ, **homes, "KUBECONFIG": str(cluster.kubeconfig)}
        self.env["PATH"] = f"{self.programs}:{os.environ['PATH']}"

    def run(self, line: str) -> str:
        """What a command line prints."""
        for word, meant in self.words.items():
            line = line.replace(word, meant)
        command = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(command, cwd=builds.ROOT, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, page: str, heading: str) -> list[str]:
        """Run all commands of a section; what each printed."""
        return [self.run(line) for line in typed.steps(page, heading)]


class Release(Terminal):
    """The release gangshare in a namespace."""

    def __init__(self, cluster: Cluster, helm: Path, values: Json, namespace: str = names.NAMESPACE) -> None:
        super().__init__(cluster, helm=helm)
        self.namespace = namespace
        self.values = cluster.dir / "values.yaml"
        self.values.write_text(json.dumps(values))

    def install(self, options: str = "") -> str:
        options = options or f"--namespace {self.namespace}"
        options += f" --create-namespace --values {self.values} --wait --timeout 5m"
        return self.run(f"helm install gangshare {CHART} {options}")

    def upgrade(self, *settings: str) -> None:
        """With the values so far and these."""
        given = " ".join(f"--set {setting}" for setting in settings)
        options = f"--namespace {self.namespace} --reset-then-reuse-values {given} --wait --timeout 5m"
        self.run(f"helm upgrade gangshare {CHART} {options}")

    def uninstall(self) -> None:
        self.run(f"helm uninstall gangshare --namespace {self.namespace} --wait --timeout 5m")

    def pods(self, container: str) -> list[Json]:
        """Its pods that have a container or a sidecar of this name."""
        return [pod for pod in self.cluster.pods(self.namespace) if container in images_of(pod)]


def images_of(pod: Json) -> dict[str, str]:
    """The image of each container, sidecars included."""
    spec = pod["spec"]
    return {one["name"]: one["image"] for one in [*spec.get("initContainers", []), *spec["containers"]]}


def ready(pod: Json) -> bool:
    """Whether Kubernetes takes the pod for ready."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True"


def given(pod: Json) -> dict[str, list[Mapping[str, object]]]:
    """What the pod was given: the shares of each container."""
    found: dict[str, list[Mapping[str, object]]] = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])[
        "containers"
    ]
    return found


def unchanged(cluster: Cluster, before: Json) -> bool:
    """Whether a pod runs on as it was: not replaced, not restarted, with the same GPUs."""
    now = cluster.pod(before["metadata"]["name"])
    (container,) = now["status"]["containerStatuses"]
    same = now["metadata"]["annotations"][names.ALLOCATION] == before["metadata"]["annotations"][names.ALLOCATION]
    same_pod = now["metadata"]["uid"] == before["metadata"]["uid"]
    return same_pod and now["status"]["phase"] == "Running" and not container["restartCount"] and same


def left_over(cluster: Cluster) -> set[str]:
    """All objects of ours in the cluster, by kind and name; what the API server makes by itself left out."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    kinds = [kind for kind in kinds if kind not in ("events", "events.events.k8s.io", "pods")]
    listed = cluster.kubectl("get", ",".join(kinds), "--all-namespaces", "--output=json", "--ignore-not-found")
    return {f"{one['kind']}/{one['metadata']['name']}" for one in json.loads(listed)["items"] if _ours(one["metadata"])}


def _ours(metadata: Json) -> bool:
    labels = metadata.get("labels", {})
    by_helm = labels.get("app.kubernetes.io/managed-by") == "Helm"
    return (by_helm or "gangshare" in metadata["name"]) and _AUTOMATIC not in labels
