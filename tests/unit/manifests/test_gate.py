"""Which pods are born with our scheduling gate: the conditions of the manifests name what the code knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gangfilter import naming
from protos.contract import names
from tests.unit.manifests.conftest import MANIFESTS, Json, Objects

Kustomize = Callable[[str], Objects]
COMPONENTS = MANIFESTS / "components"


def with_components(kustomize: Kustomize, folder: Path, *components: str) -> Objects:
    """The base with these components."""
    up = "../" * len(folder.resolve().parts)
    parts = {
        "resources": [f"{up}{MANIFESTS}/base"],
        "components": [f"{up}{COMPONENTS}/{component}" for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return kustomize(str(folder))


def conditions(policy: Json) -> dict[str, str]:
    return {condition["name"]: condition["expression"] for condition in policy["spec"]["matchConditions"]}


def test_the_condition_names_every_key_of_every_dialect(kustomize: Kustomize) -> None:
    (policy,) = kustomize("overlays/gated").of("MutatingAdmissionPolicy").values()
    condition = conditions(policy)["in-a-group"]
    named = {
        (place, key)
        for listed, place in re.findall(r"\[([^\]]*)\]\.exists\(key, key in object\.metadata\.(\w+)s\)", condition)
        for key in re.findall(r"'([^']+)'", listed)
    }
    assert named == {(key.place, key.name) for key in naming.KEYS}


def test_the_gate_is_the_one_that_the_extender_removes(kustomize: Kustomize) -> None:
    objects = kustomize("overlays/gated")
    (policy,) = objects.of("MutatingAdmissionPolicy").values()
    (mutation,) = policy["spec"]["mutations"]
    assert f"schedulingGates{{name: '{names.PLAN_GATE}'}}" in mutation["applyConfiguration"]["expression"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
    limit = objects.of("ValidatingAdmissionPolicy")["gangshare-gate"]["spec"]
    assert f"gate != '{names.PLAN_GATE}'" in limit["validations"][0]["expression"]


@pytest.mark.parametrize(
    ("component", "version"), [("gate-policy", "v1"), ("gate-policy-v1beta1", "v1beta1")], ids=["stable", "beta"]
)
def test_the_policy_is_there_for_both_versions_of_its_api(
    kustomize: Kustomize, tmp_path: Path, component: str, version: str
) -> None:
    objects = with_components(kustomize, tmp_path, component)
    made = [found for found in objects.all if found["kind"].startswith("MutatingAdmissionPolicy")]
    assert [found["apiVersion"] for found in made] == [f"admissionregistration.k8s.io/{version}"] * 2
    assert "gangshare-gate" in objects.of("ClusterRole")


@pytest.mark.parametrize("order", [("gate-policy", "operators"), ("gate-policy-v1beta1", "operators")])
def test_with_the_component_for_operators_their_pods_are_gated_too(
    kustomize: Kustomize, tmp_path: Path, order: tuple[str, ...]
) -> None:
    objects = with_components(kustomize, tmp_path, *order)
    (policy,) = objects.of("MutatingAdmissionPolicy").values()
    args = objects.containers("Deployment", "gangshare-scheduler")["extender"]["args"]
    (schedulers,) = [arg.partition("=")[2].split(",") for arg in args if arg.startswith("--scheduler-names=")]
    assert conditions(policy)["of-our-scheduler"] == f"object.spec.schedulerName in {schedulers}"
