"""Which pods are born with our scheduling gate: the conditions of the manifests name what the code knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from extender.cluster import serving_trust
from gangfilter import naming
from protos.contract import names
from tests.unit.manifests.conftest import MANIFESTS, Objects

Kustomize = Callable[[str], Objects]
COMPONENTS = MANIFESTS / "components"


def with_components(kustomize: Kustomize, folder: Path, *components: str) -> Objects:
    """The base with these components."""
    up = "../" * len(folder.resolve().parts)
    parts = {
        "resources": [f"{up}{MANIFESTS}/base"],
        "components": [f"{up}{COMPONENTS}/{component}" for component in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return kustomize(str(folder))


def conditions(objects: Objects) -> dict[str, str]:
    """Of the policy, or of the webhook."""
    found = [policy["spec"]["matchConditions"] for policy in objects.of("MutatingAdmissionPolicy").values()]
    for configuration in objects.of("MutatingWebhookConfiguration").values():
        found += [webhook["matchConditions"] for webhook in configuration["webhooks"]]
    (one,) = found
    return {condition["name"]: condition["expression"] for condition in one}


def test_the_condition_names_every_key_of_every_dialect(kustomize: Kustomize) -> None:
    condition = conditions(kustomize("overlays/gated"))["in-a-group"]
    named = {
        (place, key)
        for listed, place in re.findall(r"\[([^\]]*)\]\.exists\(key, key in object\.metadata\.(\w+)s\)", condition)
        for key in re.findall(r"'([^']+)'", listed)
    }
    assert named == {(key.place, key.name) for key in naming.KEYS}


def test_the_gate_is_the_one_that_the_extender_removes(kustomize: Kustomize) -> None:
    objects = kustomize("overlays/gated")
    (policy,) = objects.of("MutatingAdmissionPolicy").values()
    (mutation,) = policy["spec"]["mutations"]
    assert f"schedulingGates{{name: '{names.PLAN_GATE}'}}" in mutation["applyConfiguration"]["expression"]
    assert policy["spec"]["failurePolicy"] == "Ignore"
    limit = objects.of("ValidatingAdmissionPolicy")["gangshare-gate"]["spec"]
    assert f"gate != '{names.PLAN_GATE}'" in limit["validations"][0]["expression"]


@pytest.mark.parametrize(
    ("component", "version"), [("gate-policy", "v1"), ("gate-policy-v1beta1", "v1beta1")], ids=["stable", "beta"]
)
def test_the_policy_is_there_for_both_versions_of_its_api(
    kustomize: Kustomize, tmp_path: Path, component: str, version: str
) -> None:
    objects = with_components(kustomize, tmp_path, component)
    made = [found for found in objects.all if found["kind"].startswith("MutatingAdmissionPolicy")]
    assert [found["apiVersion"] for found in made] == [f"admissionregistration.k8s.io/{version}"] * 2
    assert "gangshare-gate" in objects.of("ClusterRole")


def test_the_webhook_is_asked_about_the_pods_that_the_policy_is_for(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "gate-webhook")
    assert conditions(objects) == conditions(kustomize("overlays/gated"))
    (policy,) = kustomize("overlays/gated").of("MutatingAdmissionPolicy").values()
    (webhook,) = objects.of("MutatingWebhookConfiguration")[names.WEBHOOK]["webhooks"]
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert webhook["rules"] == [{**rule, "scope": "Namespaced"}]
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")


def test_the_webhook_is_found_where_the_extender_serves_it(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "gate-webhook")
    extender = objects.containers("Deployment", "gangshare-scheduler")["extender"]
    (port,) = [port["containerPort"] for port in extender["ports"] if port["name"] == "gate"]
    assert f"--gate-webhook-listen=:{port}" in extender["args"]
    service = objects.of("Service")[names.WEBHOOK]
    assert service["spec"]["ports"] == [{"name": "gate", "port": 443, "targetPort": "gate"}]
    labels = objects.of("Deployment")["gangshare-scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (webhook,) = objects.of("MutatingWebhookConfiguration")[names.WEBHOOK]["webhooks"]
    asked = {"name": names.WEBHOOK, "namespace": names.NAMESPACE, "path": names.WEBHOOK_PATH}
    assert webhook["clientConfig"] == {"service": asked}
    assert serving_trust.hosts(names.WEBHOOK)[0] == f"{asked['name']}.{asked['namespace']}.svc"
    assert objects.of("Secret")[names.WEBHOOK]["metadata"]["namespace"] == names.NAMESPACE


def test_the_webhook_needs_no_more_rights_than_its_own_two_objects(kustomize: Kustomize, tmp_path: Path) -> None:
    objects = with_components(kustomize, tmp_path, "gate-webhook")
    (secret,) = objects.of("Role")[names.WEBHOOK]["rules"]
    (configuration,) = objects.of("ClusterRole")[names.WEBHOOK]["rules"]
    assert (secret["resources"], configuration["resources"]) == (["secrets"], ["mutatingwebhookconfigurations"])
    for rule in (secret, configuration):
        assert (rule["resourceNames"], rule["verbs"]) == ([names.WEBHOOK], ["get", "patch"])


@pytest.mark.parametrize("component", ["gate-policy", "gate-policy-v1beta1", "gate-webhook"])
def test_with_the_component_for_operators_their_pods_are_gated_too(
    kustomize: Kustomize, tmp_path: Path, component: str
) -> None:
    objects = with_components(kustomize, tmp_path, component, "operators")
    args = objects.containers("Deployment", "gangshare-scheduler")["extender"]["args"]
    (schedulers,) = [arg.partition("=")[2].split(",") for arg in args if arg.startswith("--scheduler-names=")]
    assert conditions(objects)["of-our-scheduler"] == f"object.spec.schedulerName in {schedulers}"
