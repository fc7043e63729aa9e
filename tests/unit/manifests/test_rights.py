"""Who may do what: the whole table, and the policies that narrow it down."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from extender.cluster import group_status
from gangfilter import podgroups
from protos.contract import names, priority, queue_sources, training
from tests.unit.manifests.conftest import Json, Objects

Kustomize = Callable[[str], Objects]
PLUGIN = {
    ("", "pods", "get list watch"),
    ("", "nodes", "list watch"),
    ("", "pods/status", "patch"),
    ("", "nodes/status", "patch"),
    ("", "events", "create patch"),
}
SHOWN = [kind for kind in podgroups.KINDS if group_status.writes(kind.api_version)]
"""Kinds into whose status we write how a gang stands."""
READ, FOLLOW = "get list watch", "list watch"
"""Single objects are read where their status is written; all others are only followed."""
QUEUES = [(kind, kind.api_version.partition("/")[0]) for kind in queue_sources.SOURCES]
EXTENDER = {
    ("", "pods", "get list watch"),
    ("", "nodes", "list watch"),
    ("", "pods/binding", "create"),
    ("", "pods/status", "patch"),
    ("", "pods/eviction", "create"),
    ("", "pods", "delete"),
    ("", "events", "create patch"),
    ("", "poddisruptionbudgets.policy", "list watch"),
    ("", "priorityclasses.scheduling.k8s.io", "list watch"),
    ("", "gpuclasses.gangshare.io", "get list watch"),
    ("", "gpuclasses/status.gangshare.io", "patch"),
    *(("", f"{kind.plural}.{group}", READ if group == names.DOMAIN else FOLLOW) for kind, group in QUEUES),
    ("", "queues/status.gangshare.io", "patch"),
    ("", "namespaces", FOLLOW),
    *(("", f"{kind.plural}.{kind.api_group}", READ if kind in SHOWN else FOLLOW) for kind in podgroups.KINDS),
    *(("", f"{plural}.{training.GROUP}", "list watch create delete") for plural in training.PLURALS.values()),
    *(("", f"{kind.plural}/status.{kind.api_group}", "patch") for kind in SHOWN),
    *(("", f"{kind.plural}.{kind.api_group}", "patch") for kind in SHOWN if kind.api_group != names.DOMAIN),
}
GATE = {("", "pods", "patch")}
"""Narrowed down by a policy to the removal of one scheduling gate."""
OWN_LEASE = {
    ("kube-system", "leases.coordination.k8s.io[gangshare-scheduler]", "get"),
    ("kube-system", "leases.coordination.k8s.io", "create"),
    ("kube-system", "leases.coordination.k8s.io[gangshare-scheduler]", "get update"),
    ("kube-system", "leases.coordination.k8s.io[gangshare-scheduler-extender]", "get update"),
}
REVIEWS = {
    ("", "tokenreviews.authentication.k8s.io", "create"),
    ("", "subjectaccessreviews.authorization.k8s.io", "create"),
}
"""Of the secure port, which the layouts with a scheduler of our own have."""
CLUSTERS_LEASE = {
    ("kube-system", "leases.coordination.k8s.io[kube-scheduler]", "get"),
    ("kube-system", "leases.coordination.k8s.io", "create"),
    ("kube-system", "leases.coordination.k8s.io[kube-scheduler-extender]", "get update"),
}
NAMESPACES = "gangshare-queue-namespaces"
EVERYWHERE = {"allocation", "inventory", "plugin", "plugin-events", "visibility", "visibility-keys"}
OF_TENANTS = {"gangshare-group-priority", "gangshare-queue-fixed", "gangshare-reservation", NAMESPACES}
"""Policies of layouts that have an extender."""
ONLY_HELPS = "gangshare-keys"
"""It protects nobody, so it may fail open."""
EACH_QUEUE = {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}
UNHEALTHY = {("kube-system", "configmaps", FOLLOW)}
STOCK = {"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"}


@pytest.mark.parametrize(
    ("folder", "account", "rights", "stock"),
    [
        ("base", "gangshare-plugin", PLUGIN, set()),
        ("base", "gangshare-scheduler", EXTENDER | OWN_LEASE | REVIEWS, STOCK),
        ("overlays/nvidia", "gangshare-plugin", PLUGIN, set()),
        ("overlays/fake", "gangshare-scheduler", EXTENDER | OWN_LEASE | REVIEWS, STOCK),
        ("overlays/gated", "gangshare-plugin", PLUGIN, set()),
        ("overlays/gated", "gangshare-scheduler", EXTENDER | OWN_LEASE | REVIEWS | GATE, STOCK),
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
        ("base", OF_TENANTS),
        ("overlays/gpushare", OF_TENANTS),
        ("overlays/standalone", set()),
        ("overlays/gated", OF_TENANTS | {"gangshare-gate"}),
    ],
)
def test_the_policies_deny_and_fail_closed(kustomize: Kustomize, folder: str, more: set[str]) -> None:
    objects = kustomize(folder)
    policies, bound = (
        {name: found for name, found in objects.of(kind).items() if not name.startswith(ONLY_HELPS)}
        for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    )
    everywhere = {f"gangshare-{policy}" for policy in EVERYWHERE}
    assert set(policies) == set(bound) == everywhere | more
    for name, policy in policies.items():
        # where Queues are not defined this one fails always, and the extender refuses the same pods
        assert policy["spec"]["failurePolicy"] == ("Ignore" if name == NAMESPACES else "Fail")
        more_of_it = EACH_QUEUE if name == NAMESPACES else {}
        if name.startswith("gangshare-visibility"):
            more_of_it = {"matchResources": bound[name]["spec"]["matchResources"]}
        assert bound[name]["spec"] == {"policyName": name, "validationActions": ["Deny"], **more_of_it}
        for validation in policy["spec"]["validations"]:
            assert "message" in validation or "messageExpression" in validation


def test_no_kind_of_podgroup_may_name_a_system_class(kustomize: Kustomize) -> None:
    spec = kustomize("base").of("ValidatingAdmissionPolicy")["gangshare-group-priority"]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    declaring = {(kind.api_group, kind.plural) for kind in podgroups.KINDS if kind.plural == "podgroups"}
    assert set(itertools.product(rule["apiGroups"], rule["resources"])) == declaring
    assert f"startsWith('{priority.SYSTEM_PREFIX}')" in spec["matchConditions"][0]["expression"]


def test_the_allocation_policy_sees_every_way_to_write_the_annotation(kustomize: Kustomize) -> None:
    spec = kustomize("base").of("ValidatingAdmissionPolicy")["gangshare-allocation"]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert set(rule["resources"]) == {"pods", "pods/status", "pods/binding", "bindings"}
    for variable in spec["variables"][:2]:
        assert f"'{names.ALLOCATION}' in" in variable["expression"]


def test_the_reservation_policy_sees_every_way_to_write_the_annotation(kustomize: Kustomize) -> None:
    spec = kustomize("base").of("ValidatingAdmissionPolicy")["gangshare-reservation"]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert set(rule["resources"]) == {"pods", "pods/status", "pods/binding", "bindings"}
    for variable in spec["variables"][:2]:
        assert f"'{names.RESERVATION}' in" in variable["expression"]


def test_the_inventory_policy_sees_every_way_to_write_the_annotation(kustomize: Kustomize) -> None:
    spec = kustomize("base").of("ValidatingAdmissionPolicy")["gangshare-inventory"]["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE", "UPDATE"], ["nodes", "nodes/status"])
    for variable in spec["variables"]:
        assert f"'{names.GPUS}' in" in variable["expression"]


def test_what_an_operator_needs_to_make_room_is_one_role_bound_to_nobody(kustomize: Kustomize) -> None:
    objects = kustomize("base")
    assert set(rights_of("", objects.of("ClusterRole")["gangshare-defrag"])) == {
        ("", "pods", "get"),
        ("", "pods/status", "patch"),
        ("", "reservations.gangshare.io", "create"),
        ("", "pods/eviction", "create"),
        ("", "poddisruptionbudgets.policy", "list"),
    }
    every = [*objects.of("RoleBinding").values(), *objects.of("ClusterRoleBinding").values()]
    assert "gangshare-defrag" not in {binding["roleRef"]["name"] for binding in every}


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
