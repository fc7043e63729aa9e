"""The Helm release of Gangshare, by the commands that the pages tell, run where users run them: in a clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from protos.contract import names
from tests.cluster import builds
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster

CHART = "manifests/helm/gangshare"
_HEADING = re.compile(r"^## (?P<title>.*)$", re.MULTILINE)


def steps(page: str, heading: str) -> list[str]:
    """The commands of a section of a page: its indented lines that are not in a list or a fence."""
    found = {title: text for title, text in sections(page) if "\n    " in text}
    return re.findall(r"^ {4}(?=\S)(.*)$", found[heading], re.MULTILINE)


def sections(page: str) -> Iterator[tuple[str, str]]:
    """Title and text of each section."""
    text = (builds.ROOT / page).read_text()
    parts = _HEADING.split(text)
    yield from zip(parts[1::2], parts[2::2], strict=True)


class Release:
    """The release gangshare in a namespace."""

    def __init__(self, cluster: Cluster, helm: Path, values: Json, namespace: str = names.NAMESPACE) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.values = cluster.dir / "values.yaml"
        self.values.write_text(json.dumps(values))
        self.words: dict[str, str] = {}
        """What stands for the placeholders of the pages."""
        self.programs = cluster.dir / "programs"
        self.programs.mkdir()
        (self.programs / "helm").symlink_to(helm)
        (self.programs / "kubectl").symlink_to(cluster.plane.assets.program("kubectl"))
        homes = {f"HELM_{kind}_HOME": str(cluster.dir / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
        self._env = {**os.environ, **homes, "KUBECONFIG": str(cluster.kubeconfig)}
        self._env["PATH"] = f"{self.programs}:{os.environ['PATH']}"

    def run(self, line: str) -> str:
        """What a command line prints."""
        for word, meant in self.words.items():
            line = line.replace(word, meant)
        command = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(command, cwd=builds.ROOT, env=self._env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, page: str, heading: str) -> list[str]:
        """Run all commands of a section; what each printed."""
        return [self.run(line) for line in steps(page, heading)]

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
