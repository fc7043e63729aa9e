"""The chart installs what kustomize installs, for each overlay and each component."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.unit.manifests.conftest import MANIFESTS, Chart, Json, Objects
from tests.unit.manifests.sameness import plain

Kustomize = Callable[[str], Objects]
pytestmark = pytest.mark.timeout(900)  # the first test may build helm
OVERLAYS: dict[str, Json] = {
    "nvidia": {},
    "fake": {"fake": {"profile": "dgx-a100-80g"}},
    "gated": {"gate": "policy"},
    "standalone": {"layout": "standalone"},
    "shared": {"layout": "shared"},
    "gpushare": {"layout": "gpushare"},
}
"""The values that make each overlay."""
_OF_PAGE = yaml.safe_load_all((MANIFESTS / "components/page/deployment.yaml").read_text())
PROXY = next(one["spec"]["template"]["spec"]["containers"][1:] for one in _OF_PAGE if one["kind"] == "Deployment")
"""The login proxy of the component."""
DRIVER: Json = {"plugin": {"isolation": {"mode": "driver"}}}
COMPONENTS: dict[str, Json] = {
    "autoscaler": {"autoscaler": {"startupTaint": True}},
    "cdi": {"plugin": {"deviceListStrategy": "cdi-cri"}},
    "cdi-annotations": {"plugin": {"deviceListStrategy": "cdi-annotations"}},
    "dcgm": {"dcgmExporter": {"enabled": True}},
    "deny-unknown-keys": {"policies": {"unknownKeys": "deny"}},
    "gate-policy": {"gate": "policy"},
    "gate-policy operators": {"gate": "policy", "scheduler": {"operators": True}},
    "gate-webhook": {"gate": "webhook"},
    "gate-webhook operators": {"gate": "webhook", "scheduler": {"operators": True}},
    "isolation-driver": DRIVER,
    "isolation-driver isolation-evict": {"plugin": {"isolation": {"mode": "driver", "onMismatch": "evict"}}},
    "isolation-driver isolation-limits": {"plugin": {"isolation": {"mode": "driver", "limitsHelper": True}}},
    "isolation-library": {"plugin": {"isolation": {"mode": "library"}}},
    "usage isolation-library": {"plugin": {"isolation": {"mode": "library"}}, "usage": {"enabled": True}},
    "dashboards": {"grafana": {"dashboards": {"enabled": True}}},
    "mig": {"plugin": {"migStrategy": "mixed"}},
    "mig mig-monitor": {"plugin": {"migStrategy": "mixed", "migMonitor": True}},
    "mig mig-dynamic": {"plugin": {"migStrategy": "mixed", "migDynamic": True}},
    "memory-units": {"policies": {"memoryUnits": True}},
    "mps": {"mps": {"enabled": True}},
    "provisioning": {"autoscaler": {"provisioningClass": "check-capacity.autoscaling.x-k8s.io"}},
    "operators": {"scheduler": {"operators": True}},
    "usage": {"usage": {"enabled": True}},
    "usage usage-events": {"usage": {"enabled": True, "overuseEvents": True}},
    "usage usage-idle": {"usage": {"enabled": True, "markIdleSeconds": 300}},
    "visibility": {"visibility": {"enabled": True}},
    "visibility page": {"visibility": {"enabled": True}, "page": {"enabled": True, "proxy": PROXY}},
    "void-policy": {"policies": {"void": True}},
    "warn-gpu-visibility": {"policies": {"gpuVisibility": "warn"}},
    "volume-mounts": {"plugin": {"deviceListStrategy": "volume-mounts"}},
}
"""The values that make the overlay nvidia with these components."""
EARLIER = ("gate-policy", "memory-units", "void-policy")
"""Components that have a variant for Kubernetes 1.34 and 1.35."""
PARTS = {"cdi-mounts", "gate", "nvidia", "fake", "monitoring", *(f"{name}-v1beta1" for name in EARLIER)}
"""Components that come with others, with an overlay, or by the version of Kubernetes. The chart has monitors of its
own, and the component's alerts."""


def with_components(kustomize: Kustomize, folder: Path, components: str) -> Objects:
    """The overlay nvidia with these components."""
    up = "../" * len(folder.resolve().parts)
    parts = {
        "resources": [f"{up}{MANIFESTS}/overlays/nvidia"],
        "components": [f"{up}{MANIFESTS}/components/{component}" for component in components.split()],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return kustomize(str(folder))


def assert_same(charted: Objects, kustomized: Objects) -> None:
    ours, theirs = (plain(objects, image_tags=False) for objects in (charted, kustomized))
    assert set(ours) == set(theirs)
    for name, one in ours.items():
        assert one == theirs[name], name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_is_made_by_values(chart: Chart, kustomize: Kustomize, overlay: str) -> None:
    assert_same(chart.objects(OVERLAYS[overlay]), kustomize(f"overlays/{overlay}"))


@pytest.mark.parametrize("components", COMPONENTS)
def test_each_component_is_made_by_values(chart: Chart, kustomize: Kustomize, tmp_path: Path, components: str) -> None:
    assert_same(chart.objects(COMPONENTS[components]), with_components(kustomize, tmp_path, components))


@pytest.mark.parametrize("component", EARLIER)
def test_an_earlier_kubernetes_gets_the_earlier_policies(
    chart: Chart, kustomize: Kustomize, tmp_path: Path, component: str
) -> None:
    made = chart.objects(COMPONENTS[component], version="v1.34.4")
    assert_same(made, with_components(kustomize, tmp_path, f"{component}-v1beta1"))


@pytest.mark.parametrize("component", EARLIER)
def test_where_there_are_no_such_policies_helm_says_so(chart: Chart, component: str) -> None:
    said = chart.refusal(COMPONENTS[component], version="v1.33.1")
    assert "need Kubernetes 1.34 or later, this cluster has v1.33.1" in said


def test_every_overlay_and_component_is_compared() -> None:
    overlays, components = (
        {folder.name for folder in (MANIFESTS / name).iterdir()} for name in ("overlays", "components")
    )
    assert set(OVERLAYS) == overlays
    assert {name for together in COMPONENTS for name in together.split()} | PARTS == components


def test_the_images_are_those_of_the_manifests(chart: Chart, kustomize: Kustomize) -> None:
    def images(objects: Objects) -> set[str]:
        found = objects.containers("Deployment", "gangshare-scheduler") | objects.containers(
            "DaemonSet", "gangshare-plugin"
        )
        return {container["image"] for container in found.values()}

    assert images(chart.objects(version="v1.34.4")) == images(kustomize("overlays/nvidia"))
