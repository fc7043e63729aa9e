"""Who may do what: the whole table, and the policies that narrow it down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from extender.cluster import group_status, groups
from gangfilter import podgroups
from protos.contract import names, queue, training
from tests.unit.manifests.conftest import Json, Objects

Kustomize = Callable[[str], Objects]
PLUGIN = {
    ("", "pods", "get list watch"),
    ("", "nodes", "get list watch"),
    ("", "pods/status", "patch"),
    ("", "nodes/status", "patch"),
    ("", "events", "create patch"),
}
SHOWN = [kind for kind in podgroups.KINDS if group_status.writes(groups.api_version(kind))]
"""Kinds into whose status we write how a gang stands."""
EXTENDER = {
    ("", "pods", "get list watch"),
    ("", "nodes", "get list watch"),
    ("", "pods/binding", "create"),
    ("", "pods/status", "patch"),
    ("", "pods/eviction", "create"),
    ("", "pods", "delete"),
    ("", "events", "create patch"),
    ("", "poddisruptionbudgets.policy", "get list watch"),
    ("", "priorityclasses.scheduling.k8s.io", "get list watch"),
    ("", "gpuclasses.gangshare.io", "get list watch"),
    ("", "gpuclasses/status.gangshare.io", "patch"),
    *(("", f"{kind.plural}.{kind.api_version.partition('/')[0]}", "get list watch") for kind in queue.SOURCES),
    ("", "queues/status.gangshare.io", "patch"),
    *(("", f"{kind.plural}.{kind.api_group}", "get list watch") for kind in podgroups.KINDS),
    *(("", f"{plural}.{training.GROUP}", "get list watch create delete") for plural in training.PLURALS.values()),
    *(("", f"{kind.plural}/status.{kind.api_group}", "patch") for kind in SHOWN),
    *(("", f"{kind.plural}.{kind.api_group}", "patch") for kind in SHOWN if kind.api_group != names.DOMAIN),
}
GATE = {("", "pods", "patch")}
"""Narrowed down by a policy to the removal of one scheduling gate."""
OWN_LEASE = {
    ("kube-system", "leases.coordination.k8s.io[gangshare-scheduler]", "get"),
    ("kube-system", "leases.coordination.k8s.io", "create"),
    ("kube-system", "leases.coordination.k8s.io[gangshare-scheduler]", "get update"),
}
CLUSTERS_LEASE = {("kube-system", "leases.coordination.k8s.io[kube-scheduler]", "get")}
UNHEALTHY = {("kube-system", "configmaps", "get list watch")}
STOCK = {"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}


@pytest.mark.parametrize(
    ("folder", "account", "rights", "stock"),
    [
        ("base", "gangshare-plugin", PLUGIN, set()),
        ("base", "gangshare-scheduler", EXTENDER | OWN_LEASE, STOCK),
        ("overlays/nvidia", "gangshare-plugin", PLUGIN, set()),
        ("overlays/fake", "gangshare-scheduler", EXTENDER | OWN_LEASE, STOCK),
        ("overlays/gated", "gangshare-plugin", PLUGIN, set()),
        ("overlays/gated", "gangshare-scheduler", EXTENDER | OWN_LEASE | GATE, STOCK),
        ("overlays/standalone", "gangshare-plugin", PLUGIN, set()),
        ("overlays/shared", "gangshare-scheduler", EXTENDER | CLUSTERS_LEASE, set()),
        ("overlays/gpushare", "gangshare-scheduler", EXTENDER | CLUSTERS_LEASE | UNHEALTHY, set()),
        ("overlays/gpushare", "gangshare-plugin", PLUGIN, set()),
    ],
)
def test_an_account_may_do_exactly_this(
    kustomize: Kustomize, folder: str, account: str, rights: set[tuple[str, str, str]], stock: set[str]
) -> None:
    objects = kustomize(folder)
    bound = list(bindings(objects, account))
    roles = objects.of("Role") | {f"cluster:{name}": role for name, role in objects.of("ClusterRole").items()}
    found = {right for scope, role in bound if role in roles for right in rights_of(scope, roles[role])}
    assert found == rights
    assert {role.removeprefix("cluster:") for _, role in bound if role not in roles} == stock


def bindings(objects: Objects, account: str) -> Iterator[tuple[str, str]]:
    """(namespace, role) of each binding of the account; a cluster role's name begins with `cluster:`."""
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in objects.of(kind).values():
            (subject,) = binding["subjects"]
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "gangshare-system")
            if subject["name"] == account:
                role = binding["roleRef"]
                prefix = "cluster:" if role["kind"] == "ClusterRole" else ""
                yield binding["metadata"].get("namespace", ""), prefix + role["name"]


def rights_of(scope: str, role: Json) -> Iterator[tuple[str, str, str]]:
    """(namespace, resource with its API group and names, verbs)."""
    for rule in role["rules"]:
        for resource, group in itertools.product(rule["resources"], rule["apiGroups"]):
            which = f"[{' '.join(rule['resourceNames'])}]" if "resourceNames" in rule else ""
            yield scope, resource + (f".{group}" if group else "") + which, " ".join(rule["verbs"])


@pytest.mark.parametrize(
    ("folder", "more"),
    [
        ("base", set()),
        ("overlays/gpushare", set()),
        ("overlays/standalone", set()),
        ("overlays/gated", {"gangshare-gate"}),
    ],
)
def test_the_policies_deny_and_fail_closed(kustomize: Kustomize, folder: str, more: set[str]) -> None:
    objects = kustomize(folder)
    policies, bound = objects.of("ValidatingAdmissionPolicy"), objects.of("ValidatingAdmissionPolicyBinding")
    assert set(policies) == set(bound) == {"gangshare-allocation", "gangshare-plugin"} | more
    for name, policy in policies.items():
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert bound[name]["spec"] == {"policyName": name, "validationActions": ["Deny"]}
        for validation in policy["spec"]["validations"]:
            assert "message" in validation or "messageExpression" in validation


def test_the_allocation_policy_sees_every_way_to_write_the_annotation(kustomize: Kustomize) -> None:
    spec = kustomize("base").of("ValidatingAdmissionPolicy")["gangshare-allocation"]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert set(rule["resources"]) == {"pods", "pods/status", "pods/binding", "bindings"}
    for variable in spec["variables"][:2]:
        assert f"'{names.ALLOCATION}' in" in variable["expression"]


@pytest.mark.parametrize(
    ("folder", "prefixes", "counts"),
    [
        ("base", "['gangshare.io/']", "[]"),
        ("overlays/gpushare", "['gangshare.io/', 'ALIYUN_COM_GPU_MEM_']", "['aliyun.com/gpu-count']"),
    ],
)
def test_what_the_plugin_may_write_depends_on_the_dialect(
    kustomize: Kustomize, folder: str, prefixes: str, counts: str
) -> None:
    spec = kustomize(folder).of("ValidatingAdmissionPolicy")["gangshare-plugin"]["spec"]
    said = {variable["name"]: variable["expression"] for variable in spec["variables"]}
    assert said["prefixes"] == prefixes
    assert said["counts"] == counts
    (condition,) = spec["matchConditions"]
    assert "'system:serviceaccount:gangshare-system:gangshare-plugin'" in condition["expression"]
