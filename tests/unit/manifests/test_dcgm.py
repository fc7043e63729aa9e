"""The component that serves PodResources for dcgm-exporter, and what its page says to set there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from protos.contract import names
from tests.unit.docs.pages import blocks, page
from tests.unit.manifests.conftest import Objects
from tests.unit.manifests.test_visibility import with_component

FOLDER = Path(names.POD_RESOURCES_SOCKET).parent
"""Mounted by every dcgm-exporter, the GPU operator's too."""


@pytest.mark.parametrize("overlay", ["nvidia", "standalone", "shared", "gpushare"])
def test_the_socket_lies_where_dcgm_exporter_looks_and_the_page_names_it(
    kustomize: Callable[[str], Objects], tmp_path: Path, overlay: str
) -> None:
    objects = with_component(kustomize, tmp_path, f"overlays/{overlay}", "dcgm")
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    (socket,) = [arg.partition("=")[2] for arg in plugin["args"] if arg.startswith("--serve-pod-resources=")]
    assert Path(socket).parent == FOLDER
    assert socket != names.POD_RESOURCES_SOCKET
    (mount,) = [mount for mount in plugin["volumeMounts"] if mount["mountPath"] == str(FOLDER)]
    assert mount["readOnly"] is False
    told = [yaml.safe_load(block.text) for block in blocks(page("docs/dcgm.md"), "yaml")]
    lists: list[list[dict[str, Any]]] = [told[0]["dcgmExporter"]["env"], told[1]["extraEnv"]]
    for env in lists:
        assert {one["name"]: one["value"] for one in env} == {
            "DCGM_POD_RESOURCES_KUBELET_SOCKET": socket,
            "KUBERNETES_VIRTUAL_GPUS": "true",
        }
