"""Who reaches which port: what the processes listen on, and whom the NetworkPolicies let in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from extender import settings
from extender.settings import Address
from protos.contract import names
from tests.unit.manifests.conftest import Json, Objects

Kustomize = Callable[[str], Objects]
SCHEDULER, PLUGIN = "gangshare-scheduler", "gangshare-plugin"
SCRAPERS = [{"namespaceSelector": {"matchLabels": {names.METRICS_LABEL: "true"}}}]


def listening(args: list[str]) -> dict[str, Address]:
    """The addresses in a command line, by option."""
    given = dict(arg.removeprefix("--").split("=", 1) for arg in args if "=" in arg)
    return {name: settings.address(value) for name, value in given.items() if name.endswith("listen")}


def let_in(objects: Objects, pod: str) -> dict[int, Any]:
    """Whom the policies that select this pod let in, by port; None is everybody."""
    found: dict[int, Any] = {}
    for policy in objects.of("NetworkPolicy").values():
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress"]
        if spec["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": pod}}:
            for rule in spec["ingress"]:
                found |= {port["port"]: rule.get("from") for port in rule["ports"]}
    return found


@pytest.mark.parametrize("folder", ["overlays/shared", "overlays/gpushare"])
def test_beside_the_clusters_scheduler_nothing_is_opened_on_the_hosts_addresses(
    kustomize: Kustomize, folder: str
) -> None:
    extender = kustomize(folder).containers("DaemonSet", "gangshare-extender")["extender"]
    where = listening(extender["args"])
    assert set(where) == {"listen", "status-listen"}
    assert all(address.on_loopback for address in where.values())
    assert "ports" not in extender
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = extender[probe]["httpGet"]
        assert (asked["host"], asked["port"]) == (where["status-listen"].host, where["status-listen"].port)


@pytest.mark.parametrize("folder", ["base", "overlays/gated"])
def test_with_a_scheduler_of_our_own_its_verbs_are_on_loopback_and_its_ports_are_named(
    kustomize: Kustomize, folder: str
) -> None:
    objects = kustomize(folder)
    extender = objects.containers("Deployment", SCHEDULER)["extender"]
    where = listening(extender["args"])
    assert where.pop("listen").on_loopback
    ports = {port["name"]: port["containerPort"] for port in extender["ports"]}
    assert ports == {"status": where["status-listen"].port, "secure": where["secure-listen"].port}
    (service,) = [found for name, found in objects.of("Service").items() if name == SCHEDULER]
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports


@pytest.mark.parametrize("folder", ["base", "overlays/shared", "overlays/gpushare", "overlays/standalone"])
def test_nobody_reaches_the_namespace_but_where_somebody_is_let_in(kustomize: Kustomize, folder: str) -> None:
    objects = kustomize(folder)
    closed: Json = objects.of("NetworkPolicy")["gangshare-nobody"]
    assert closed["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert {found["metadata"]["namespace"] for found in objects.of("NetworkPolicy").values()} == {"gangshare-system"}
    (args,) = [container["args"] for container in objects.containers("DaemonSet", PLUGIN).values()]
    assert f"--metrics-port={next(iter(let_in(objects, PLUGIN)))}" in args
    assert let_in(objects, PLUGIN) == {12347: SCRAPERS}


def test_metrics_are_for_namespaces_that_say_so_and_the_verbs_for_nobody(kustomize: Kustomize) -> None:
    objects = kustomize("base")
    where = listening(objects.containers("Deployment", SCHEDULER)["extender"]["args"])
    expected = (where["status-listen"].port, where["secure-listen"].port, 10259)
    assert let_in(objects, SCHEDULER) == dict.fromkeys(expected, SCRAPERS)


def test_the_webhook_is_reached_from_everywhere(kustomize: Kustomize) -> None:
    objects = kustomize("components/gate-webhook")
    assert let_in(objects, SCHEDULER) == {12348: None}


def test_the_roles_for_the_secure_port_name_its_paths(kustomize: Kustomize) -> None:
    roles = kustomize("base").of("ClusterRole")
    (viewer,), (metrics,) = roles["gangshare-viewer"]["rules"], roles["gangshare-metrics"]["rules"]
    assert metrics == {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    assert viewer["verbs"] == ["get"]
    for path in (
        "/inspect",
        "/inspect/n1",
        "/classes",
        "/queues",
        "/explain/ns/p",
        "/explain/groups/ns/g",
        "/defrag/ns/p",
    ):
        assert any(
            path == url or (url.endswith("*") and path.startswith(url[:-1])) for url in viewer["nonResourceURLs"]
        )
    assert "/metrics" not in viewer["nonResourceURLs"]
