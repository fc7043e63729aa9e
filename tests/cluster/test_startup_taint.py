"""What components/autoscaler leaves to a plugin, on a real API server; no container runs there."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator

import pytest

from deviceplugin.cluster import Cluster as NodeCluster
from protos.contract import names, objects
from protos.kube import credentials, errors, events
from protos.kube.client import ApiClient
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import NAMESPACE, kustomization
from tests.cluster.process import wait_for

NODES = "/api/v1/nodes"
CONFLICT = 409
Change = Callable[[list[Json]], Json]
"""What a plugin writes, of all taints but the startup taint."""
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


def write(cluster: Cluster, plugin: Api, node: str, change: Change) -> None:
    """Write the change of a node as it is now: Kubernetes' own controllers change its taints as well."""
    while True:
        now = cluster.api.get(f"{NODES}/{node}")
        patch = change([taint for taint in now["spec"]["taints"] if taint["key"] != OURS["key"]])
        version = {"resourceVersion": now["metadata"]["resourceVersion"]}
        try:
            plugin.patch(f"{NODES}/{node}", {**patch, "metadata": {**patch.get("metadata", {}), **version}})
            return
        except ApiError as error:
            if error.status != CONFLICT:
                raise


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (lambda _: {"spec": {"taints": []}}, "changes no other"),
        (lambda rest: {"spec": {"taints": [OURS, *rest, {"key": "a", "effect": "NoExecute"}]}}, "changes no other"),
        (lambda rest: {"spec": {"taints": rest, "unschedulable": True}}, "nothing else of a Node's spec"),
        (
            lambda rest: {"spec": {"taints": rest}, "metadata": {"labels": {"a": "b"}}},
            "may not change a Node's metadata",
        ),
        (
            lambda rest: {"spec": {"taints": rest}, "metadata": {"annotations": {names.GPUS: "{}"}}},
            "may not change a Node's metadata",
        ),
    ],
)
def test_a_plugin_changes_nothing_else_of_its_node(cluster: Cluster, plugin: Api, change: Change, refused: str) -> None:
    with pytest.raises(ApiError, match=refused):
        write(cluster, plugin, "node-1", change)


async def test_a_plugin_removes_the_startup_taint_of_its_own_node_only(cluster: Cluster, plugin: Api) -> None:
    with pytest.raises(ApiError, match="gangshare-plugin of node node-1 may not change node node-2"):
        write(cluster, plugin, "node-2", lambda rest: {"spec": {"taints": rest}})
    access = await credentials.load(str(cluster.account_kubeconfig(NAMESPACE, names.PLUGIN, node="node-1")))
    async with ApiClient(access) as client:
        recorder = events.Recorder(client, component=names.PLUGIN, instance="node-1", clock=time.monotonic)
        own = NodeCluster(client, "node-1", recorder)

        async def remove(node: objects.Node) -> None:
            await own.remove_taint(node, next(taint for taint in node.spec.taints if taint.key == OURS["key"]))

        for _ in range(5):  # a controller of Kubernetes may change the taints between the two calls
            node = objects.decode_node(json.dumps(cluster.api.get(f"{NODES}/node-1")).encode())
            with contextlib.suppress(errors.ApiError):
                await remove(node)
                break
        with pytest.raises(errors.ApiError):
            await remove(node)  # as it was before
    assert keys(cluster, "node-1") == [OTHERS["key"]]
    assert keys(cluster, "node-2") == sorted([OURS["key"], OTHERS["key"]])


def test_its_other_writes_go_on_through_the_status(plugin: Api) -> None:
    plugin.patch(f"{NODES}/node-1/status", {"metadata": {"annotations": {names.GPUS: "{}"}}})
