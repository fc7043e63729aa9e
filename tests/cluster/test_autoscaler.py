"""An autoscaler's stand-in on the real API server: from no GPU node to running pods, and gangs that ask as a whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos.contract import names, provisioning
from tests.cluster.api import Json
from tests.cluster.autoscaler import REQUESTS, Autoscaler, definition
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import Gangshare, a_gpu_pod
from tests.cluster.process import wait_for
from tests.cluster.release import Terminal

MACHINE, MOST = "t4x1", 3
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PARTS = ("nvidia", "autoscaler", "provisioning")


@pytest.fixture(scope="module")
def scaler(able_machine: None) -> Iterator[Autoscaler]:
    """A cluster without a GPU node, and a group that may have three."""
    with Cluster.up(nodes=1, scheduler=False) as cluster:
        cluster.apply([definition()])
        terminal = Terminal(cluster, gangshare=Path(sys.executable).with_name("gangshare"))
        sharing = Gangshare(
            cluster,
            {},
            components=PARTS,
            plugin_args=[f"--startup-taint={names.STARTUP_TAINT}"],
            extender_args=[f"--provisioning-class={CLASS}", "--provisioning-after=0"],
        )
        tags = terminal.run(f"gangshare autoscaler-tags --profile {MACHINE}")
        yield Autoscaler(sharing.start(), tags, MACHINE, MOST)


def unschedulable(scaler: Autoscaler, *pods: str) -> None:
    def told() -> bool:
        found = [scaler.cluster.pod(name)["status"].get("conditions", []) for name in pods]
        return all(any(c.get("reason") == "Unschedulable" for c in conditions) for conditions in found)

    wait_for(told, 30, f"{pods} are unschedulable")


def members(scaler: Autoscaler, gang: str, count: int, *, mem: int = 0, whole: int = 0) -> list[str]:
    """Create a gang that needs all of its members."""
    made = [f"{gang}-{number}" for number in range(count)]
    for name in made:
        terms = {names.GROUP: gang, names.MIN_MEMBER: f"{count}"}
        scaler.cluster.create_pod(a_gpu_pod(name, mem=mem, whole=whole, annotations=terms))
    return made


def requests(scaler: Autoscaler) -> list[Json]:
    return scaler.cluster.api.items(REQUESTS)


def request_of(scaler: Autoscaler, pods: list[str]) -> Json:
    """The one request of a gang, which all of its members name."""

    def named() -> Json | None:
        found = requests(scaler)
        keys = {scaler.cluster.pod(name)["metadata"]["annotations"].get(provisioning.CONSUMES) for name in pods}
        return found[0] if len(found) == 1 and keys == {found[0]["metadata"]["name"]} else None

    return wait_for(named, 30, f"one request that {pods} consume")


def test_from_zero_one_node_is_added_for_a_pod(scaler: Autoscaler) -> None:
    scaler.cluster.create_pod(a_gpu_pod("first", mem=10))
    unschedulable(scaler, "first")

    for _ in range(3):  # the node has its startup taint: it comes
        scaler.look()

    assert scaler.added == ["node-2"]
    scaler.start_plugins()
    assert scaler.cluster.wait_phase("first", "Running")["spec"]["nodeName"] == "node-2"
    assert not scaler.cluster.api.get("/api/v1/nodes/node-2")["spec"].get("taints")
    scaler.look()
    assert scaler.added == ["node-2"]
    scaler.cluster.delete_pods()


def test_a_gang_asks_once_and_as_a_whole_also_across_a_restart(scaler: Autoscaler) -> None:
    """One of its members fits on the node that is there."""
    gang = members(scaler, "train", 3, whole=1)
    request = request_of(scaler, gang)
    assert [each["count"] for each in request["spec"]["podSets"]] == [3]
    extender = scaler.sharing.pair.extender
    extender.kill()
    scaler.sharing.pair.start_extender()
    assert request_of(scaler, gang)["metadata"]["uid"] == request["metadata"]["uid"]

    scaler.look()
    assert scaler.added == ["node-2", "node-3", "node-4"]
    assert requests(scaler)[0]["metadata"]["uid"] == request["metadata"]["uid"]
    scaler.start_plugins()

    pods = [scaler.cluster.wait_phase(name, "Running") for name in gang]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(scaler.added)
    wait_for(lambda: not requests(scaler), 30, "the request is over")
    assert not scaler.cluster.api.items("/api/v1/podtemplates")
    scaler.sharing.check_books()
    scaler.cluster.delete_pods()


def test_a_gang_that_gets_no_nodes_is_told_and_leaves_no_request_behind(scaler: Autoscaler) -> None:
    gang = members(scaler, "large", 5, whole=1)
    request_of(scaler, gang)

    scaler.look()

    def told() -> bool:
        events = [event for name in gang for event in scaler.cluster.events(name)]
        return any("no such capacity" in event["message"] for event in events)

    assert len(scaler.added) == MOST
    wait_for(told, 30, "an Event about the failure")
    scaler.cluster.delete_pods()
    wait_for(lambda: not requests(scaler), 30, "no request of a gang that is gone")
    wait_for(lambda: not scaler.cluster.api.items("/api/v1/podtemplates"), 30, "no template either")
