"""Memory limits as components: what the plugin may read of the host and write there, and whom it may evict."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
import yaml

from deviceplugin import cgroups
from deviceplugin.isolation import probe
from deviceplugin.isolation.levels import Mode, OnMismatch
from deviceplugin.library.regions import DEFAULT_DIR as LIBRARY_DIR
from deviceplugin.settings import Settings
from protos import flags
from tests.unit.manifests.conftest import MANIFESTS, Objects
from tests.unit.manifests.test_rights import PLUGIN, bindings, rights_of

Kustomize = Callable[[str], Objects]


def with_components(kustomize: Kustomize, folder: Path, base: str, *components: str) -> Objects:
    beside = os.path.relpath(MANIFESTS, folder)
    named = [f"{beside}/components/{component}" for component in components]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [f"{beside}/{base}"], "components": named}))
    return kustomize(str(folder))


def rights(objects: Objects) -> set[tuple[str, str, str]]:
    roles = {f"cluster:{name}": role for name, role in objects.of("ClusterRole").items()}
    return {right for scope, role in bindings(objects, "gangshare-plugin") for right in rights_of(scope, roles[role])}


@pytest.mark.parametrize("overlay", ["nvidia", "standalone", "shared", "gpushare"])
def test_the_plugin_reads_two_folders_of_the_host_and_may_no_more_than_before(
    kustomize: Kustomize, tmp_path: Path, overlay: str
) -> None:
    objects = with_components(kustomize, tmp_path, f"overlays/{overlay}", "isolation-driver")
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    assert f"--isolation={Mode.DRIVER}" in plugin["args"]
    (root,) = [Path(arg.partition("=")[2]) for arg in plugin["args"] if arg.startswith("--host-root=")]
    spec = objects.of("DaemonSet")["gangshare-plugin"]["spec"]["template"]["spec"]
    from_host = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in plugin["volumeMounts"]}
    assert from_host[mounts[str(cgroups.ROOT)]["name"]] == str(cgroups.ROOT), "the driver opens the host's paths"
    assert from_host[mounts[str(root / "usr")]["name"]] == "/usr"
    assert all(tool.startswith("usr/") for tools in probe.TOOLS for tool in tools)
    assert all(mounts[path]["readOnly"] for path in (str(cgroups.ROOT), str(root / "usr")))
    context = plugin["securityContext"]
    assert (context["capabilities"], context["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)
    assert not context.get("privileged")
    assert not spec.get("hostPID")
    assert rights(objects) == PLUGIN


def test_only_the_component_for_it_lets_the_plugin_evict(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "overlays/nvidia", "isolation-driver", "isolation-evict")
    assert (
        f"--on-isolation-mismatch={OnMismatch.EVICT}"
        in objects.containers("DaemonSet", "gangshare-plugin")["plugin"]["args"]
    )
    assert rights(objects) - PLUGIN == {("", "pods/eviction", "create")}
    policies = objects.of("ValidatingAdmissionPolicy")
    conditions = {c["name"]: c["expression"] for c in policies["gangshare-plugin"]["spec"]["matchConditions"]}
    assert set(conditions) == {"is-the-plugin", "is-no-eviction"}
    assert "'eviction'" in conditions["is-no-eviction"]
    assert len(policies["gangshare-plugin-events"]["spec"]["matchConditions"]) == 1


@pytest.mark.parametrize("before", [(), ("isolation-driver",), ("isolation-driver", "isolation-evict", "usage")])
def test_the_library_is_read_regions_are_written_and_processes_are_seen(
    kustomize: Kustomize, tmp_path: Path, before: tuple[str, ...]
) -> None:
    objects = with_components(kustomize, tmp_path, "overlays/nvidia", *before, "isolation-library")
    plugin = objects.containers("DaemonSet", "gangshare-plugin")["plugin"]
    spec = objects.of("DaemonSet")["gangshare-plugin"]["spec"]["template"]["spec"]
    given = dict(arg.removeprefix("--").partition("=")[::2] for arg in plugin["args"])
    assert (given["isolation"], given["library-dir"]) == (Mode.LIBRARY, LIBRARY_DIR)
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    assert len(hosts) == len(spec["volumes"])
    mounts = {mount["mountPath"]: mount for mount in plugin["volumeMounts"]}
    for path in (str(cgroups.ROOT), str(Path(given["library-path"]).parent), given["library-dir"]):
        assert hosts[mounts[path]["name"]] == path, "the kubelet and the driver get the host's paths"
    written = {path for path, mount in mounts.items() if not mount.get("readOnly")}
    assert written - {"/var/lib/kubelet/device-plugins"} == {given["library-dir"]}
    context = plugin["securityContext"]
    assert (context["capabilities"], context["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)
    assert spec["hostPID"] is True
    assert not context.get("privileged")
    assert not {"hostNetwork", "hostIPC"} & set(spec)
    if "usage" in before:
        (usage,) = objects.containers("DaemonSet", "gangshare-usage").values()
        assert {"name": "GANGSHARE_LIBRARY_DIR", "value": given["library-dir"]} in usage["env"]
        assert next(m for m in usage["volumeMounts"] if m["mountPath"] == given["library-dir"])["readOnly"]
    elif "isolation-evict" not in before:
        assert rights(objects) == PLUGIN


def test_nobody_has_the_library_or_host_pid_who_did_not_ask_for_it(kustomize: Kustomize) -> None:
    for folder in ("base", "overlays/nvidia"):
        spec = kustomize(folder).of("DaemonSet")["gangshare-plugin"]["spec"]["template"]["spec"]
        assert "hostPID" not in spec
        assert "vgpu" not in str(spec)


def test_of_two_modes_the_last_counts() -> None:
    seen: list[Settings] = []
    app = typer.Typer()
    app.command()(flags.command(Settings, seen.append, ()))
    words = ["--node-name=n", "--isolation=driver", "--isolation=library", "--library-path=/l/libvgpu.so"]
    typer.main.get_command(app).main(words, standalone_mode=False)
    assert seen[0].isolation is Mode.LIBRARY
