"""Every layout builds, and its processes run with as little as they need."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from extender.cli import scheduler_config
from extender.settings import Settings
from protos.contract import names
from tests.unit.manifests.conftest import MANIFESTS, Json, Objects

Kustomize = Callable[[str], Objects]
OVERLAYS = sorted(f"overlays/{folder.name}" for folder in (MANIFESTS / "overlays").iterdir())
FOLDERS = ["base", *OVERLAYS]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_layout_builds_and_all_that_it_names_is_there(kustomize: Kustomize, folder: str) -> None:
    objects = kustomize(folder)
    accounts, config_maps = objects.of("ServiceAccount"), objects.of("ConfigMap")
    for workload in [*objects.of("DaemonSet").values(), *objects.of("Deployment").values()]:
        spec = workload["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] in accounts
        assert spec["enableServiceLinks"] is False
        named = [volume["configMap"]["name"] for volume in spec.get("volumes", []) if "configMap" in volume]
        assert set(named) <= set(config_maps)


def test_the_overlays_are_those_that_are_told_of() -> None:
    told = {"nvidia", "fake", "standalone", "shared", "gpushare", "gated"}
    assert {Path(overlay).name for overlay in OVERLAYS} == told


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_container_has_more_than_it_needs(kustomize: Kustomize, folder: str) -> None:
    objects = kustomize(folder)
    for kind in ("DaemonSet", "Deployment"):
        for name, workload in objects.of(kind).items():
            pod = workload["spec"]["template"]["spec"].get("securityContext", {})
            for container in objects.containers(kind, name).values():
                context = {**pod, **container["securityContext"]}
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert context["readOnlyRootFilesystem"] is True
                assert context["allowPrivilegeEscalation"] is False
                assert context["seccompProfile"] == {"type": "RuntimeDefault"}
                assert not context.get("privileged")
                assert context["runAsUser"] == (0 if container["name"] == "plugin" else 65532)
                assert {"requests", "limits"} == set(container["resources"])


def test_the_scheduler_starts_after_its_extender_and_dies_with_it(kustomize: Kustomize) -> None:
    containers = kustomize("base").containers("Deployment", "gangshare-scheduler")
    extender, scheduler = containers["extender"], containers["kube-scheduler"]
    assert extender["restartPolicy"] == "Always"
    assert extender["startupProbe"]["httpGet"] == {"path": "/readyz", "port": "status"}
    ports = {port["name"]: port["containerPort"] for port in extender["ports"]}
    assert scheduler["livenessProbe"]["httpGet"] == {"path": "/livez", "port": ports["status"]}
    assert f"--listen={scheduler_config.DEFAULT_URL.removeprefix('http://')}" in extender["args"]


@pytest.mark.parametrize(
    ("folder", "layout", "url"),
    [
        ("base/scheduler", "own", None),
        ("overlays/shared", "shared", None),
        ("overlays/gpushare", "gpushare", "http://127.0.0.1:32766"),
    ],
)
def test_the_schedulers_file_is_what_the_command_prints(
    folder: str, layout: scheduler_config.Layout, url: str | None
) -> None:
    usual = scheduler_config.defaults(layout)
    options = scheduler_config.Options(
        extender_url=url or usual.extender_url, resources=usual.resources, kubeconfig=usual.kubeconfig
    )
    printed = scheduler_config.render(layout, options)
    again = f"gangshare scheduler-config --layout {layout}" + (f" --extender-url {url}" if url else "")
    assert (MANIFESTS / folder / "scheduler.yaml").read_text() == printed, f"print it again: {again}"


def test_with_the_component_for_operators_their_pods_come_to_us(kustomize: Kustomize, tmp_path: Path) -> None:
    beside = os.path.relpath(MANIFESTS, tmp_path)
    parts = {"resources": [f"{beside}/overlays/nvidia"], "components": [f"{beside}/components/operators"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    objects = kustomize(str(tmp_path))
    profiles = (names.PROFILE, "volcano", "kube-batch")
    args = objects.containers("Deployment", "gangshare-scheduler")["extender"]["args"]
    assert f"--scheduler-names={','.join(profiles)}" in args
    (rival,) = [arg.partition("=")[2] for arg in args if arg.startswith("--conflicting-leases")]
    (rule,) = objects.of("ClusterRole")["gangshare-rivals"]["rules"]
    assert (rule["verbs"], rule["resourceNames"]) == (["get"], [rival.partition("/")[2]])
    ((name, made),) = objects.of("ConfigMap").items()
    assert made["data"]["scheduler.yaml"] == scheduler_config.render("own", scheduler_config.Options(profiles=profiles))
    volumes = objects.of("Deployment")["gangshare-scheduler"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["configMap"]["name"] == name


@pytest.mark.parametrize(
    ("folder", "kind", "name", "layout"),
    [
        ("base", "Deployment", "gangshare-scheduler", "own"),
        ("overlays/shared", "DaemonSet", "gangshare-extender", "shared"),
        ("overlays/gpushare", "DaemonSet", "gangshare-extender", "gpushare"),
    ],
)
def test_the_extender_knows_how_long_its_scheduler_waits_and_under_which_names(
    kustomize: Kustomize, folder: str, kind: str, name: str, layout: scheduler_config.Layout
) -> None:
    printed = scheduler_config.configuration(layout, scheduler_config.defaults(layout))
    (binder,) = [entry for entry in printed["extenders"] if "bindVerb" in entry]
    args = kustomize(folder).containers(kind, name)["extender"]["args"]
    said = dict(arg.removeprefix("--").split("=", 1) for arg in args if "=" in arg)
    assert f"{said.get('bind-timeout', f'{Settings().bind_timeout_s:g}')}s" == binder["httpTimeout"]
    assert said["scheduler-names"] == ",".join(profile["schedulerName"] for profile in printed["profiles"])


@pytest.mark.parametrize("folder", ["base", "overlays/nvidia", "overlays/fake"])
def test_a_changed_scheduler_file_rolls_the_deployment(kustomize: Kustomize, folder: str) -> None:
    (name,) = kustomize(folder).of("ConfigMap")
    assert name.startswith("gangshare-scheduler-")


@pytest.mark.parametrize("folder", ["overlays/shared", "overlays/gpushare"])
def test_beside_the_clusters_scheduler_the_extender_shares_its_host_and_its_lease(
    kustomize: Kustomize, folder: str
) -> None:
    objects = kustomize(folder)
    spec = objects.of("DaemonSet")["gangshare-extender"]["spec"]["template"]["spec"]
    assert spec["hostNetwork"] is True
    assert "--lease-name=kube-scheduler" in spec["containers"][0]["args"]
    rules = objects.of("Role")["gangshare-extender"]["rules"]
    assert [rule.get("resourceNames") for rule in rules] == [["kube-scheduler"], ["kube-scheduler-extender"], None]
    assert "Deployment" not in {found["kind"] for found in objects.all}


def test_gpushare_is_found_where_its_users_look_for_it(kustomize: Kustomize) -> None:
    objects = kustomize("overlays/gpushare")
    assert "--listen=127.0.0.1:32766" in objects.containers("DaemonSet", "gangshare-extender")["extender"]["args"]
    plugin = objects.of("DaemonSet")["gangshare-plugin"]["spec"]["template"]["spec"]
    assert plugin["nodeSelector"] == {"gpushare": "true"}
    assert "runtimeClassName" not in plugin
    assert all("--gpushare" in args for args in plugin_and_extender_args(objects))
    handed_out = yaml.safe_load(objects.of("ConfigMap")["gangshare-kube-scheduler"]["data"]["scheduler.yaml"])
    assert handed_out["extenders"][0]["managedResources"][0]["name"] == names.ALIYUN_MEM


def plugin_and_extender_args(objects: Objects) -> list[list[str]]:
    return [
        objects.containers("DaemonSet", "gangshare-extender")["extender"]["args"],
        objects.containers("DaemonSet", "gangshare-plugin")["plugin"]["args"],
    ]


@pytest.mark.parametrize(
    ("folder", "flags", "runtime"),
    [
        ("base", [], None),
        ("overlays/nvidia", [], "nvidia"),
        ("overlays/gated", [], "nvidia"),
        ("overlays/fake", ["--fake=dgx-a100-80g"], None),
        ("overlays/standalone", ["--standalone"], "nvidia"),
        ("overlays/shared", [], "nvidia"),
        ("overlays/gpushare", ["--gpushare"], None),
    ],
)
def test_the_plugin_of_each_layout(kustomize: Kustomize, folder: str, flags: list[str], runtime: str | None) -> None:
    objects = kustomize(folder)
    spec = objects.of("DaemonSet")["gangshare-plugin"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["--metrics-port=12347", *flags]
    assert spec.get("runtimeClassName") == runtime
    assert spec["tolerations"] == [{"operator": "Exists"}]
    node_name: Json = next(variable for variable in container["env"] if variable["name"] == "NODE_NAME")
    assert node_name["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {names.DEVICE_PLUGIN_DIR, str(Path(names.POD_RESOURCES_SOCKET).parent)}


def test_the_plugin_alone_brings_no_scheduler(kustomize: Kustomize) -> None:
    objects = kustomize("overlays/standalone")
    assert set(objects.of("DaemonSet")) == {"gangshare-plugin"}
    assert not objects.of("Deployment")
    assert set(objects.of("ServiceAccount")) == {"gangshare-plugin"}
    policies = {"allocation", "inventory", "plugin", "plugin-events", "visibility", "visibility-keys", "keys"}
    assert set(objects.of("ValidatingAdmissionPolicy")) == {f"gangshare-{policy}" for policy in policies}


@pytest.mark.parametrize("folder", FOLDERS)
def test_renewals_of_the_lease_wait_behind_nothing_of_ours(kustomize: Kustomize, folder: str) -> None:
    flows = kustomize(folder).of("FlowSchema")
    if folder == "overlays/standalone":
        assert not flows
        return
    lease, rest = flows["gangshare-lease"]["spec"], flows["gangshare"]["spec"]
    assert lease["matchingPrecedence"] < rest["matchingPrecedence"]
    assert lease["priorityLevelConfiguration"] != rest["priorityLevelConfiguration"]
    assert rest["priorityLevelConfiguration"]["name"] in kustomize(folder).of("PriorityLevelConfiguration")
