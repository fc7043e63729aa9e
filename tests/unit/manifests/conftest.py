"""What kustomize makes of each folder, and helm of the chart."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import assets, needed

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "manifests"
CHART = MANIFESTS / "helm/gangshare"


@functools.cache
def built(folder: str) -> tuple[Json, ...]:
    done = subprocess.run(["kubectl", "kustomize", MANIFESTS / folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


class Objects:
    """The objects of one folder, or those that are given."""

    def __init__(self, folder: str, objects: Iterable[Json] | None = None) -> None:
        self.all = built(folder) if objects is None else tuple(objects)

    def of(self, kind: str) -> dict[str, Json]:
        """Those of a kind, by name."""
        return {found["metadata"]["name"]: found for found in self.all if found["kind"] == kind}

    def containers(self, kind: str, name: str) -> dict[str, Json]:
        """A workload's containers, init containers too, by name."""
        spec = self.of(kind)[name]["spec"]["template"]["spec"]
        return {found["name"]: found for found in [*spec.get("initContainers", []), *spec["containers"]]}


@pytest.fixture(scope="session")
def kustomize() -> Callable[[str], Objects]:
    """Objects of a folder under manifests/."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is missing: https://kubernetes.io/docs/tasks/tools")
    return Objects


@pytest.fixture(scope="session")
def helm() -> Path:
    """The program, built if it was not yet."""
    with needed.or_skip():
        return assets.helm()


class Chart:
    """The chart as helm renders it."""

    def __init__(self, helm: Path) -> None:
        self.helm = helm

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of helm, whatever becomes of it."""
        command: list[str | Path] = [self.helm, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def template(
        self, values: Json | None = None, *, namespace: str = "gangshare-system", version: str = "v1.36.3"
    ) -> subprocess.CompletedProcess[str]:
        """What helm makes of these values, for this version of Kubernetes."""
        options = [f"--namespace={namespace}", f"--kube-version={version}", "--values=-"]
        command: list[str | Path] = [self.helm, "template", "gangshare", CHART, *options]
        given = json.dumps(values or {})
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)

    def objects(self, values: Json | None = None, **options: str) -> Objects:
        done = self.template(values, **options)
        assert done.returncode == 0, done.stderr
        return Objects("", [found for found in yaml.safe_load_all(done.stdout) if found])

    def refusal(self, values: Json, **options: str) -> str:
        """What helm says of values that it does not take."""
        done = self.template(values, **options)
        assert done.returncode != 0, "the values were taken"
        return done.stderr


@pytest.fixture(scope="session")
def chart(helm: Path) -> Chart:
    return Chart(helm)


@pytest.fixture
def definition(kustomize: Callable[[str], Objects], request: pytest.FixtureRequest) -> Json:
    """The spec of the CustomResourceDefinition that the test's module names: its `DEFINITION`."""
    found: Json = kustomize("base").of("CustomResourceDefinition")[request.module.DEFINITION]["spec"]
    return found


@pytest.fixture
def schema(definition: Json) -> Json:
    """What objects of the one version look like, by field."""
    (version,) = definition["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]["properties"]
    return found


def undescribed(path: str, field: Json) -> Iterator[str]:
    """The fields at and below this one of which the schema does not say what they are."""
    if "description" not in field:
        yield path
    for name, inner in field.get("properties", {}).items():
        yield from undescribed(f"{path}.{name}", inner)
