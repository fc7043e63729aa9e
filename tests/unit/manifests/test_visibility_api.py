"""The component of the aggregated API: who asks whom, where, and who sees what by which role."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from extender.cluster import serving_trust
from extender.server.visibility.resources import RESOURCES
from protos.contract import names
from tests.unit.manifests.conftest import Json, Objects
from tests.unit.manifests.test_gate import with_components
from tests.unit.manifests.test_ports import let_in

Kustomize = Callable[[str], Objects]
AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
READS = {"get", "list"}


@pytest.fixture
def objects(kustomize: Kustomize, tmp_path: Path) -> Objects:
    return with_components(kustomize, tmp_path, "visibility")


def test_the_api_server_finds_it_where_the_extender_serves_it(objects: Objects) -> None:
    extender = objects.containers("Deployment", names.SCHEDULER)["extender"]
    (port,) = [port["containerPort"] for port in extender["ports"] if port["name"] == "visibility"]
    assert f"--visibility-listen=:{port}" in extender["args"]
    assert let_in(objects, names.SCHEDULER)[port] is None
    service = objects.of("Service")[names.VISIBILITY]
    assert service["spec"]["ports"] == [{"name": "visibility", "port": 443, "targetPort": "visibility"}]
    labels = objects.of("Deployment")[names.SCHEDULER]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    spec = objects.of("APIService")[names.VISIBILITY_API_SERVICE]["spec"]
    assert spec["service"] == {"name": names.VISIBILITY, "namespace": names.NAMESPACE, "port": 443}
    assert (spec["group"], spec["version"]) == (names.VISIBILITY_GROUP, names.VISIBILITY_VERSION)
    assert "insecureSkipTLSVerify" not in spec
    assert serving_trust.hosts(names.VISIBILITY)[0] == f"{names.VISIBILITY}.{names.NAMESPACE}.svc"
    assert objects.of("Secret")[names.VISIBILITY]["metadata"]["namespace"] == names.NAMESPACE


def test_without_the_component_nothing_is_served(kustomize: Kustomize) -> None:
    base = kustomize("base")
    assert not base.of("APIService")
    assert not any(
        "visibility-listen" in arg for arg in base.containers("Deployment", names.SCHEDULER)["extender"]["args"]
    )


def test_the_extender_needs_its_own_two_objects_the_front_proxys_name_and_reviews(objects: Objects) -> None:
    (secret,) = objects.of("Role")[names.VISIBILITY]["rules"]
    (service,) = objects.of("ClusterRole")[names.VISIBILITY]["rules"]
    assert (secret["resources"], secret["resourceNames"]) == (["secrets"], [names.VISIBILITY])
    assert (service["resources"], service["resourceNames"]) == (["apiservices"], [names.VISIBILITY_API_SERVICE])
    assert secret["verbs"] == service["verbs"] == ["get", "patch"]
    reader = objects.of("RoleBinding")["gangshare-visibility-authentication"]
    assert reader["metadata"]["namespace"] == "kube-system"
    assert reader["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    reviews = objects.of("ClusterRoleBinding")["gangshare-visibility-reviews"]
    assert reviews["roleRef"]["name"] == "system:auth-delegator"
    for binding in (reader, reviews):
        (subject,) = binding["subjects"]
        assert (subject["namespace"], subject["name"]) == (names.NAMESPACE, names.SCHEDULER)


def rights(role: Json, group: str) -> dict[str, set[str]]:
    """The verbs of a role by resource."""
    rules = [rule for rule in role["rules"] if rule["apiGroups"] == [group]]
    return {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}


def served(*, namespaced: bool) -> dict[str, set[str]]:
    """The verbs of the resources that are in a namespace, or in none."""
    return {resource.plural: set(resource.verbs) for resource in RESOURCES if resource.namespaced is namespaced}


def aggregated(role: Json) -> set[str]:
    return {key for key in role["metadata"]["labels"] if key.startswith(AGGREGATE)}


def test_the_roles_view_edit_and_admin_read_every_kind(kustomize: Kustomize) -> None:
    objects = kustomize("base")  # they read our own kinds without the component, too
    view = objects.of("ClusterRole")["gangshare-view"]
    assert aggregated(view) == {f"{AGGREGATE}view"}
    assert rights(view, names.VISIBILITY_GROUP) == served(namespaced=True) | served(namespaced=False)
    assert set(rights(view, names.DOMAIN)) == {"podgroups", "queues", "gpuclasses"}
    assert all(verbs == READS | {"watch"} for verbs in rights(view, names.DOMAIN).values())


def test_the_roles_edit_and_admin_write_podgroups_and_no_queues(kustomize: Kustomize) -> None:
    edit = kustomize("base").of("ClusterRole")["gangshare-edit"]
    assert aggregated(edit) == {f"{AGGREGATE}edit"}
    assert set(rights(edit, names.DOMAIN)) == {"podgroups"}
    assert rights(edit, names.VISIBILITY_GROUP) == {"whatifs": {"create"}}


def test_a_role_for_everybody_shows_what_is_in_no_namespace_and_is_bound_to_nobody(objects: Objects) -> None:
    viewer = objects.of("ClusterRole")["gangshare-gpu-viewer"]
    assert rights(viewer, names.VISIBILITY_GROUP) == served(namespaced=False)
    bindings = [*objects.of("ClusterRoleBinding").values(), *objects.of("RoleBinding").values()]
    assert not [one for one in bindings if one["roleRef"]["name"] in ("gangshare-gpu-viewer", "gangshare-view")]
