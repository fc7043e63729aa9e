"""A node joins, is drained and is replaced on a real cluster, by the commands of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.process import wait_for
from tests.cluster.release import Terminal

PAGE = "docs/nodes.md"
FIRST, NEW = "node-1", "node-2"
THERE = {"kubernetes.io/hostname": NEW}
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MOST = 12
"""GiB of a GPU with 15."""


def machine(uuid: str) -> dict[str, Any]:
    """A node with one GPU of this name."""
    return {"defaults": {"model": "Tesla T4", "memMiB": 15_360, "cc": "7.5"}, "gpus": [{"uuid": uuid}]}


@pytest.fixture(scope="module")
def sharing(able_machine: None) -> Iterator[Gangshare]:
    with Cluster.up(nodes=1) as running:
        yield Gangshare(running, {FIRST: machine("GPU-first")}).start()


@pytest.fixture(scope="module")
def terminal(sharing: Gangshare) -> Terminal:
    made = Terminal(sharing.cluster)
    made.words |= {"NODE": NEW, "POD": "later"}
    return made


def served(sharing: Gangshare, *, node: str) -> Json:
    """The pod of the Deployment once it runs on this node."""

    def runs() -> Json | None:
        pods = sharing.cluster.pods("default", "app=web")
        return next((p for p in pods if p["status"]["phase"] == "Running" and p["spec"]["nodeName"] == node), None)

    return wait_for(runs, 60, f"web on {node}")


def gpus(sharing: Gangshare, node: str) -> set[str]:
    """The GPUs of a node in the books."""
    return {gpu["uuid"] for each in sharing.pair.inspect()["nodes"] if each["name"] == node for gpu in each["gpus"]}


def replace(sharing: Gangshare, uuid: str, until: Callable[[], bool] = lambda: True) -> None:
    """Another machine of the same name, with another GPU, whose plugin starts once `until` holds."""
    sharing.cluster.nodes[NEW].replace()
    wait_for(until, 60, "the kubelet's own work")
    sharing.plugins[NEW].kill()  # dead already: this reaps
    sharing.add(NEW, machine(uuid))
    wait_for(lambda: gpus(sharing, NEW) == {uuid}, 60, f"{uuid} in the books")
    wait_for(lambda: sharing.offers(NEW), 60, "GPU memory on the new machine")


def test_a_pending_pod_starts_on_a_node_that_joins(sharing: Gangshare, terminal: Terminal) -> None:
    cluster = sharing.cluster
    sharing.run(a_gpu_pod("stays", mem=MOST))
    pod = a_gpu_pod("web", mem=MOST, restartPolicy="Always")
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.api.post(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec})
    wait_for(lambda: [each["code"] for each in sharing.pair.inspect()["waiting"]] == ["NoRoom"], 30, "a pod that waits")

    cluster.add_node()
    sharing.add(NEW, machine("GPU-old"))

    web = served(sharing, node=NEW)
    wait_for(lambda: sharing.offers(NEW), 60, "what the kubelet publishes")
    assert terminal.follow(PAGE, "A node joins") == ["15"]
    assert sharing.annotated(web) == {"main": ["GPU-old"]}
    sharing.check_books()


def test_a_drained_node_is_empty_and_its_pods_start_elsewhere(sharing: Gangshare, terminal: Terminal) -> None:
    sharing.cluster.api.delete("/api/v1/namespaces/default/pods/stays", gracePeriodSeconds="1")

    terminal.follow(PAGE, "A node is drained")

    web = served(sharing, node=FIRST)
    assert sharing.annotated(web) == {"main": ["GPU-first"]}
    (node,) = [each for each in sharing.pair.inspect()["nodes"] if each["name"] == NEW]
    assert [gpu["memUsed"] for gpu in node["gpus"]] == [0]
    sharing.check_books()


def test_a_machine_of_the_same_name_has_its_own_gpus(sharing: Gangshare, terminal: Terminal) -> None:
    replace(sharing, "GPU-new")
    terminal.follow(PAGE, "A node is replaced")
    later = sharing.run(a_gpu_pod("later", mem=MOST, restartPolicy="Always"))
    assert sharing.annotated(later) == {"main": ["GPU-new"]}
    sharing.check_books()


def test_a_pod_on_a_replaced_machine_is_told_and_blocks_no_other(sharing: Gangshare, terminal: Terminal) -> None:
    """The kubelet starts the pod before there is a plugin, as it does where the plugin is a pod of the node."""
    before = sharing.cluster.pod("later")["status"]["containerStatuses"][0]["containerID"]

    def started() -> bool:
        (container,) = sharing.cluster.pod("later")["status"]["containerStatuses"]
        return bool(container["containerID"] != before and container["state"].get("running"))

    replace(sharing, "GPU-third", until=started)
    small = sharing.run(a_gpu_pod("small", mem=3, nodeSelector=THERE))
    assert sharing.annotated(small) == {"main": ["GPU-third"]}
    wait_for(lambda: "GpuNotAllocated" in [e["reason"] for e in sharing.cluster.events("later")], 60, "its Event")
    told, _ = terminal.follow(PAGE, "Under running pods")
    assert "container main runs" in told
    later = sharing.run(a_gpu_pod("later", mem=MOST, nodeSelector=THERE))
    assert sharing.annotated(later) == {"main": ["GPU-third"]}
    sharing.check_books()
