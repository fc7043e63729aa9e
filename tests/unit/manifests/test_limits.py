"""The optional component that sets limits: what it may do on the node, and that the plugin gets no right by it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deviceplugin import cgroups
from deviceplugin.limits import protocol
from tests.unit.docs import options
from tests.unit.manifests.conftest import MANIFESTS, Objects

Kustomize = Callable[[str], Objects]
SOCKET = Path(protocol.DEFAULT_SOCKET)


@pytest.fixture
def objects(kustomize: Kustomize, tmp_path: Path) -> Objects:
    beside = os.path.relpath(MANIFESTS, tmp_path)
    named = [f"{beside}/components/{name}" for name in ("isolation-driver", "isolation-limits")]
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [f"{beside}/overlays/nvidia"], "components": named})
    )
    return kustomize(str(tmp_path))


def test_the_helper_is_root_with_one_capability_and_without_token(objects: Objects) -> None:
    spec = objects.of("DaemonSet")["gangshare-limits"]["spec"]["template"]["spec"]
    context = spec["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert "privileged" not in context
    assert not {"hostPID", "hostNetwork", "hostIPC"} & spec.keys()
    assert spec["automountServiceAccountToken"] is False
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in objects.of(kind).values():
            assert spec["serviceAccountName"] not in [subject["name"] for subject in binding["subjects"]]


def test_the_plugin_gets_the_socket_and_no_right(objects: Objects, kustomize: Kustomize) -> None:
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    before = kustomize("overlays/nvidia").containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert plugin["securityContext"] == before["securityContext"]
    assert f"--limits-socket={SOCKET}" in plugin["args"]


def test_both_see_socket_and_control_groups_at_the_paths_of_the_host(objects: Objects) -> None:
    for name in ("gangshare-plugin", "gangshare-limits"):
        spec = objects.of("DaemonSet")[name]["spec"]["template"]["spec"]
        from_host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
        mounts = {mount["mountPath"]: from_host[mount["name"]] for mount in spec["containers"][0]["volumeMounts"]}
        for path in (str(SOCKET.parent), str(cgroups.ROOT)):
            assert mounts[path] == path


def test_it_starts_the_command_of_the_plugins_image(objects: Objects) -> None:
    container = objects.containers("DaemonSet", "gangshare-limits")["limits"]
    assert container["image"] == objects.containers("DaemonSet", "gangshare-plugin")["plugin"]["image"]
    assert " ".join(container["command"][1:]) == "-m deviceplugin.limits"
    assert "python -m deviceplugin.limits" in options.PROCESSES
