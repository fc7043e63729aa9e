"""What components/autoscaler leaves to a plugin, on a real API server; no container runs there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from protos.contract import names
from tests.cluster.api import Api, ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import NAMESPACE, kustomization
from tests.cluster.process import wait_for

NODES = "/api/v1/nodes"
OURS = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/gangshare", "effect": "NoSchedule"}
OTHERS = {"key": "example.com/theirs", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cluster(able_machine: None) -> Iterator[Cluster]:
    """An API server with manifests/base and the component, and two tainted nodes that are only objects."""
    with Cluster.up(nodes=0, scheduler=False) as running:
        running.apply(kustomization(running, "base", "nvidia", "autoscaler"))
        for name in ("node-1", "node-2"):
            running.api.post(NODES, {"metadata": {"name": name}, "spec": {"taints": [OURS, OTHERS]}})
        yield running


@pytest.fixture(scope="module")
def plugin(cluster: Cluster) -> Api:
    """The API server as the plugin of node-1 sees it, once the policy works."""
    api = cluster.account_api(NAMESPACE, names.PLUGIN, node="node-1")

    def works() -> bool:
        try:
            api.patch(f"{NODES}/node-2", {"spec": {"taints": [OTHERS]}}, dryRun="All")
        except ApiError as error:
            return "may not change node node-2" in error.message
        return False

    wait_for(works, 30, "a policy that works")
    return api


def keys(cluster: Cluster, node: str) -> list[str]:
    """The keys of a node's taints, without those of Kubernetes' own controllers."""
    taints = cluster.api.get(f"{NODES}/{node}")["spec"].get("taints") or []
    return sorted(taint["key"] for taint in taints if not taint["key"].startswith("node.kubernetes.io/"))


@pytest.mark.parametrize(
    ("patch", "refused"),
    [
        ({"spec": {"taints": []}}, "changes no other"),
        ({"spec": {"taints": [OURS, OTHERS, {"key": "a", "effect": "NoExecute"}]}}, "changes no other"),
        ({"spec": {"taints": [OTHERS], "unschedulable": True}}, "nothing else of a Node's spec"),
        ({"spec": {"taints": [OTHERS]}, "metadata": {"labels": {"a": "b"}}}, "may not change a Node's metadata"),
        (
            {"spec": {"taints": [OTHERS]}, "metadata": {"annotations": {names.GPUS: "{}"}}},
            "may not change a Node's metadata",
        ),
    ],
)
def test_a_plugin_changes_nothing_else_of_its_node(plugin: Api, patch: dict[str, Any], refused: str) -> None:
    with pytest.raises(ApiError, match=refused):
        plugin.patch(f"{NODES}/node-1", patch)


def test_a_plugin_removes_the_startup_taint_of_its_own_node_only(cluster: Cluster, plugin: Api) -> None:
    with pytest.raises(ApiError, match="gangshare-plugin of node node-1 may not change node node-2"):
        plugin.patch(f"{NODES}/node-2", {"spec": {"taints": [OTHERS]}})
    before = cluster.api.get(f"{NODES}/node-1")["spec"]["taints"]
    plugin.patch(f"{NODES}/node-1", {"spec": {"taints": [taint for taint in before if taint["key"] != OURS["key"]]}})
    assert keys(cluster, "node-1") == [OTHERS["key"]]
    assert keys(cluster, "node-2") == sorted([OURS["key"], OTHERS["key"]])


def test_its_other_writes_go_on_through_the_status(plugin: Api) -> None:
    plugin.patch(f"{NODES}/node-1/status", {"metadata": {"annotations": {names.GPUS: "{}"}}})
