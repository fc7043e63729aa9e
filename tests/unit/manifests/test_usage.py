"""The component that measures: hostPID and no other privilege, nothing written unless that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deviceplugin.usage.settings import Settings
from protos.contract import names
from tests.unit.manifests.conftest import Objects
from tests.unit.manifests.test_gate import with_components
from tests.unit.manifests.test_ports import SCRAPERS, let_in
from tests.unit.manifests.test_rights import bindings, rights_of

Kustomize = Callable[[str], Objects]
READS = {("", "pods", "list watch"), ("", "nodes", "list watch")}
TELLS = {("", "events", "create patch")}
MARKS = {("", "pods/status", "patch")}


def rights(objects: Objects) -> set[tuple[str, str, str]]:
    roles = {f"cluster:{name}": role for name, role in objects.of("ClusterRole").items()}
    return {right for scope, role in bindings(objects, names.USAGE) for right in rights_of(scope, roles[role])}


def test_it_has_host_pid_and_nothing_else(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "usage")
    spec = objects.of("DaemonSet")[names.USAGE]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["hostPID"] is True
    assert not {"hostNetwork", "hostIPC"} & set(spec)
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["runAsNonRoot"]
    assert context["runAsUser"] not in (0, 65532, 65534, 1000), "processes with one number may read and end each other"
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert "privileged" not in context
    assert [volume["hostPath"]["path"] for volume in spec["volumes"]] == ["/dev/null"]
    assert "args" not in container
    assert container["command"][1:] == ["-m", "deviceplugin.usage"]


def test_without_the_component_nothing_of_it_is_there(kustomize: Kustomize) -> None:
    assert names.USAGE not in kustomize("base").of("DaemonSet")


@pytest.mark.parametrize(("components", "expected"), [(["usage"], READS), (["usage", "usage-events"], READS | TELLS)])
def test_it_writes_events_alone_and_only_if_they_are_asked_for(
    kustomize: Kustomize, tmp_path: Path, components: list[str], expected: set[tuple[str, str, str]]
) -> None:
    objects = with_components(kustomize, tmp_path, *components)
    assert rights(objects) == expected
    (container,) = objects.containers("DaemonSet", names.USAGE).values()
    assert container.get("args", []) == (["--overuse-events"] if expected > READS else [])


def test_it_marks_idle_pods_only_if_that_is_asked_for(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "usage", "usage-idle")
    assert rights(objects) == READS | MARKS
    policies = objects.of("ValidatingAdmissionPolicy")
    bound = {each["spec"]["policyName"] for each in objects.of("ValidatingAdmissionPolicyBinding").values()}
    for name in ("gangshare-usage-idle", "gangshare-idle"):
        assert policies[name]["spec"]["failurePolicy"] == "Fail"
        assert name in bound
        assert names.IDLE in yaml.safe_dump(policies[name])
    (container,) = objects.containers("DaemonSet", names.USAGE).values()
    assert {"name": "GANGSHARE_MARK_IDLE", "value": "300"} in container["env"]
    (tmp_path / "both").mkdir()
    both = with_components(kustomize, tmp_path / "both", "usage", "usage-events", "usage-idle")
    assert rights(both) == READS | TELLS | MARKS


def test_its_port_is_for_those_who_may_read_metrics(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "usage")
    assert let_in(objects, names.USAGE) == {names.USAGE_PORT: SCRAPERS}
    (container,) = objects.containers("DaemonSet", names.USAGE).values()
    assert container["ports"] == [{"name": "metrics", "containerPort": Settings(node_name="n").port}]


def test_who_may_see_it_is_a_role_bound_to_nobody(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "usage")
    assert set(rights_of("", objects.of("Role")["gangshare-usage-viewer"])) == {
        ("", "pods", "list"),
        ("", "pods/proxy", "get"),
    }
    every = [*objects.of("RoleBinding").values(), *objects.of("ClusterRoleBinding").values()]
    assert "gangshare-usage-viewer" not in {binding["roleRef"]["name"] for binding in every}
