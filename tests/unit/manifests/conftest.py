"""What kustomize makes of each folder, read once."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "manifests"


@functools.cache
def built(folder: str) -> tuple[Json, ...]:
    done = subprocess.run(["kubectl", "kustomize", MANIFESTS / folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


class Objects:
    """The objects of one folder."""

    def __init__(self, folder: str) -> None:
        self.all = built(folder)

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
