"""The policies by which no pod names GPUs to the container runtime: they name what the code knows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deviceplugin import cdi
from deviceplugin.answers import Strategy
from protos.contract import names, visibility
from tests.unit.manifests.conftest import MANIFESTS, Json, Objects

Kustomize = Callable[[str], Objects]
FOLDERS = ["base", *sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())]
SPEC_DIRS = {str(one) for one in cdi.SPEC_DIRS}
EXEMPT = [
    {"key": names.GPU_VISIBILITY, "operator": "NotIn", "values": ["all"]},
    {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [names.NAMESPACE]},
]
"""Namespaces that say so, and our own."""


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("policy", ["gangshare-visibility", "gangshare-visibility-keys"])
def test_every_layout_refuses_what_it_cannot_judge(kustomize: Kustomize, folder: str, policy: str) -> None:
    objects = kustomize(folder)
    spec = objects.of("ValidatingAdmissionPolicy")[policy]["spec"]
    assert spec["failurePolicy"] == "Fail"
    bound = objects.of("ValidatingAdmissionPolicyBinding")[policy]["spec"]
    assert bound["validationActions"] == ["Deny"]
    assert bound["matchResources"]["namespaceSelector"]["matchExpressions"] == EXEMPT


def test_the_policy_and_the_filter_refuse_the_same(kustomize: Kustomize) -> None:
    spec = kustomize("base").of("ValidatingAdmissionPolicy")["gangshare-visibility"]["spec"]
    env, prefix, mount, annotation, many = (validation["expression"] for validation in spec["validations"])
    assert f"variable.name != '{names.VISIBLE_DEVICES}'" in env
    assert f"variable.value in {list(visibility.HARMLESS)}" in env
    assert f"!'{names.VISIBLE_DEVICES}'.startsWith(source.prefix)" in prefix
    assert f"contains('{Path(names.DEVICE_MOUNTS).name}')" in mount
    assert f"startsWith('{names.CDI_ANNOTATIONS}')" in annotation
    assert annotation.startswith("variables.now.size() > 512 ||"), "more take the API server seconds"
    assert many.startswith("variables.now.size() <= 512 ||"), "what is not searched is refused"


def test_no_config_map_limits_gpu_memory_by_a_name_that_the_filter_knows(kustomize: Kustomize) -> None:
    spec = kustomize("base").of("ValidatingAdmissionPolicy")["gangshare-visibility-keys"]["spec"]
    _, limits = (validation["expression"] for validation in spec["validations"])
    assert f"{[names.MEMORY_REQUEST, names.MEMORY_LIMIT]}.all(key," in limits


def with_component(kustomize: Kustomize, folder: Path, base: str, component: str) -> Objects:
    beside = os.path.relpath(MANIFESTS, folder)
    parts = {"resources": [f"{beside}/{base}"], "components": [f"{beside}/components/{component}"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return kustomize(str(folder))


@pytest.mark.parametrize("overlay", ["nvidia", "standalone", "shared", "gpushare"])
@pytest.mark.parametrize(
    ("component", "strategy", "folders"),
    [
        ("volume-mounts", Strategy.VOLUME_MOUNTS, set()),
        ("cdi", Strategy.CDI_CRI, SPEC_DIRS),
        ("cdi-annotations", Strategy.CDI_ANNOTATIONS, SPEC_DIRS),
    ],
)
def test_the_plugin_gives_gpus_without_the_environment_and_sees_them_so(
    kustomize: Kustomize, tmp_path: Path, overlay: str, component: str, strategy: Strategy, folders: set[str]
) -> None:
    objects = with_component(kustomize, tmp_path, f"overlays/{overlay}", component)
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert [arg for arg in plugin["args"] if "strategy" in arg] == [f"--device-list-strategy={strategy}"]
    spec = objects.of("DaemonSet")["gangshare-plugin"]["spec"]["template"]["spec"]
    from_host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in plugin["volumeMounts"]}
    assert from_host[mounts[f"{names.DEVICE_MOUNTS}/all"]["name"]] == "/dev/null"
    assert {path for path in mounts if "cdi" in path} == folders
    for folder in folders:
        assert from_host[mounts[folder]["name"]] == folder
        assert mounts[folder]["readOnly"] is True


@pytest.mark.parametrize(("component", "version"), [("void-policy", "v1"), ("void-policy-v1beta1", "v1beta1")])
def test_containers_are_told_void_unless_they_ask_one_of_our_resources(
    kustomize: Kustomize, tmp_path: Path, component: str, version: str
) -> None:
    objects = with_component(kustomize, tmp_path, "base", component)
    made = [found for found in objects.all if found["metadata"]["name"] == "gangshare-void"]
    assert [found["apiVersion"] for found in made] == [f"admissionregistration.k8s.io/{version}"] * 2
    spec: Json = objects.of("MutatingAdmissionPolicy")["gangshare-void"]["spec"]
    said = {variable["name"]: variable["expression"] for variable in spec["variables"]}
    assert set(re.findall(r"'([^']+)'", said["asked"])) == {*names.Resources().all, names.ALIYUN_MEM}
    assert f"'{names.VISIBLE_DEVICES}'" in said["silent"]
    fields = re.findall(r"/spec/(\w+)/", str(spec["mutations"]))
    assert set(fields) == {"containers", "initContainers", "ephemeralContainers"}
