"""The optional partitioner: what it may do on the node, and that the plugin gets no right by it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deviceplugin.partitioner import protocol
from deviceplugin.partitioner.settings import Settings
from tests.unit.docs import options
from tests.unit.manifests.conftest import MANIFESTS, Chart, Objects

Kustomize = Callable[[str], Objects]
SOCKET = Path(protocol.DEFAULT_SOCKET)


@pytest.fixture
def objects(kustomize: Kustomize, tmp_path: Path) -> Objects:
    beside = os.path.relpath(MANIFESTS, tmp_path)
    named = [f"{beside}/components/{name}" for name in ("mig", "mig-dynamic")]
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [f"{beside}/overlays/nvidia"], "components": named})
    )
    return kustomize(str(tmp_path))


def test_the_partitioner_is_root_with_one_capability_and_without_token(objects: Objects) -> None:
    spec = objects.of("DaemonSet")["gangshare-partitioner"]["spec"]["template"]["spec"]
    context = spec["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert "privileged" not in context
    assert not {"hostPID", "hostNetwork", "hostIPC"} & spec.keys()
    assert spec["automountServiceAccountToken"] is False


def test_the_plugin_gets_the_socket_and_no_right(objects: Objects, kustomize: Kustomize) -> None:
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    before = kustomize("overlays/nvidia").containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert plugin["securityContext"] == before["securityContext"]
    assert f"--partitioner-socket={SOCKET}" in plugin["args"]


def test_socket_and_journal_are_at_the_paths_of_the_host(objects: Objects) -> None:
    for name, paths in (
        ("gangshare-plugin", [SOCKET.parent]),
        ("gangshare-partitioner", [SOCKET.parent, Settings().state_dir]),
    ):
        spec = objects.of("DaemonSet")[name]["spec"]["template"]["spec"]
        from_host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
        mounts = {mount["mountPath"]: from_host[mount["name"]] for mount in spec["containers"][0]["volumeMounts"]}
        for path in map(str, paths):
            assert mounts[path] == path


def test_it_starts_the_command_of_the_plugins_image(objects: Objects) -> None:
    container = objects.containers("DaemonSet", "gangshare-partitioner")["partitioner"]
    assert container["image"] == objects.containers("DaemonSet", "gangshare-plugin")["plugin"]["image"]
    assert " ".join(container["command"][1:]) == "-m deviceplugin.partitioner"
    assert "python -m deviceplugin.partitioner" in options.PROCESSES


def test_the_chart_gives_it_the_gpus_and_names_a_strategy_that_does_not_go_with_it(chart: Chart) -> None:
    plugin = {"migStrategy": "mixed", "migDynamic": True, "migDynamicGpus": "6,7"}
    container = chart.objects({"plugin": plugin}).containers("DaemonSet", "gangshare-partitioner")["partitioner"]
    assert container["args"] == ["--gpus=6,7"]
    assert "plugin.migStrategy is none: expected mixed" in chart.refusal({"plugin": {"migDynamic": True}})
