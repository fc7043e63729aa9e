"""The optional component for MPS: the rights that it needs, and a folder that both sides see at the same path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deviceplugin.mps import exchange
from protos.contract import names
from tests.unit.docs import options
from tests.unit.manifests.conftest import MANIFESTS, Objects

Kustomize = Callable[[str], Objects]


@pytest.fixture
def objects(kustomize: Kustomize, tmp_path: Path) -> Objects:
    beside = os.path.relpath(MANIFESTS, tmp_path)
    parts = {"resources": [f"{beside}/overlays/nvidia"], "components": [f"{beside}/components/mps"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return kustomize(str(tmp_path))


def test_the_component_has_the_rights_of_the_node_and_none_in_the_cluster(objects: Objects) -> None:
    spec = objects.of("DaemonSet")["gangshare-mps"]["spec"]["template"]["spec"]
    assert spec["hostPID"] is True
    assert spec["containers"][0]["securityContext"]["privileged"] is True
    assert spec["automountServiceAccountToken"] is False
    assert "hostNetwork" not in spec
    account = spec["serviceAccountName"]
    assert objects.of("ServiceAccount")[account]["automountServiceAccountToken"] is False
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in objects.of(kind).values():
            assert account not in [subject["name"] for subject in binding["subjects"]]


def test_the_plugin_gets_no_more_rights_by_it(objects: Objects, kustomize: Kustomize) -> None:
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    before = kustomize("overlays/nvidia").containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert plugin["securityContext"] == before["securityContext"]


def test_both_sides_see_the_folder_at_the_same_path_of_the_host(objects: Objects) -> None:
    for name, container in (("gangshare-plugin", "plugin"), ("gangshare-mps", "mps")):
        spec = objects.of("DaemonSet")[name]["spec"]["template"]["spec"]
        paths = [volume["hostPath"]["path"] for volume in spec["volumes"] if volume["name"] == "mps"]
        mounts = objects.containers("DaemonSet", name)[container]["volumeMounts"]
        assert paths == [mount["mountPath"] for mount in mounts if mount["name"] == "mps"] == [exchange.DEFAULT_DIR]
    assert f"--mps-dir={exchange.DEFAULT_DIR}" in objects.containers("DaemonSet", "gangshare-plugin")["plugin"]["args"]


def test_it_runs_on_nodes_with_the_label_and_is_replaced_by_hand_alone(objects: Objects) -> None:
    found = objects.of("DaemonSet")["gangshare-mps"]["spec"]
    assert found["template"]["spec"]["nodeSelector"] == {names.MPS: "true"}
    assert found["updateStrategy"] == {"type": "OnDelete"}


def test_it_starts_the_command_of_the_plugins_image(objects: Objects) -> None:
    container = objects.containers("DaemonSet", "gangshare-mps")["mps"]
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert container["image"] == plugin["image"]
    assert " ".join(container["command"][1:]) == "-m deviceplugin.mps"
    assert "python -m deviceplugin.mps" in options.PROCESSES
