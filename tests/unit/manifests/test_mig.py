"""MIG instances as a component without rights, and the rights to see later ones as another."""

from __future__ import annotations

from pathlib import Path

from deviceplugin.mig.strategy import Strategy
from tests.unit.manifests.test_isolation import Kustomize, rights, with_components
from tests.unit.manifests.test_rights import PLUGIN


def test_instances_are_offered_without_further_rights(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "overlays/nvidia", "mig")
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert f"--mig-strategy={Strategy.MIXED}" in plugin["args"]
    context = plugin["securityContext"]
    assert (context["capabilities"], context["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)
    assert rights(objects) == PLUGIN


def test_only_the_component_for_it_has_the_capability_to_see_later_ones(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "overlays/nvidia", "mig", "mig-monitor")
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"} in plugin["env"]
    context = plugin["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert not context.get("privileged")
    assert "allowPrivilegeEscalation" not in context
    assert rights(objects) == PLUGIN
