"""Isolation on real nodes: limits of the driver, MPS, and what containers use, with real containers and control groups.

`node-1` has a driver that limits memory, and a runtime that runs the toolkit's hook. `node-2` has an older driver, and
its GPUs are given over to MPS. The GPUs, their driver and MPS's control program are stand-ins; what runs in between is
real: API server, scheduler, kubelet, containerd, runc, CDI, and the accounts and policies of the components.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.cgroups import Group, containers
from protos.contract import idle, inventory, names, objects
from tests.cluster import assets, cgroups, host, mps_node, toolkit
from tests.cluster.api import Json
from tests.cluster.cluster import Cluster
from tests.cluster.gangshare import NAMESPACE, Gangshare, a_gpu_pod, get
from tests.cluster.process import Process, wait_for
from tests.scenarios import commands

LIMITS, MPS = "node-1", "node-2"
T4 = {"model": "Tesla T4", "memMiB": 14910, "cc": "7.5"}
NEW, OLD = "615.71.05", "595.91.07"
COMPONENTS = ("nvidia", "isolation-driver", "isolation-evict", "mps", "usage", "usage-events", "usage-idle")
DEMANDS = {names.ISOLATION: "memory"}
METRICS = {node: host.free_port() for node in (LIMITS, MPS)}
ENFORCED = 'gangshare_plugin_isolated_containers{state="enforced"}'
GIB = 2**30


@pytest.fixture(scope="module")
def root() -> Path:
    """The machine's hierarchy of cgroup v2."""
    found = cgroups.unified()
    if found is None:
        pytest.skip("needs cgroup v2, also beside v1")
    return found


@pytest.fixture(scope="module")
def cluster(able_machine: None, root: Path) -> Iterator[Cluster]:
    """Two nodes whose containerd knows CDI."""
    try:
        containerd = assets.containerd_with_cdi()
    except assets.MissingAsset as missing:
        if assets.in_ci():
            raise
        pytest.skip(str(missing))
    with Cluster.up(nodes=2, scheduler=False, containerd=containerd) as running:
        running.api.patch(f"/api/v1/nodes/{MPS}", {"metadata": {"labels": {names.MPS: "true"}}})
        yield running


@pytest.fixture(scope="module")
def sharing(cluster: Cluster, root: Path) -> Iterator[Gangshare]:
    machines = {
        node: {"defaults": T4, "gpus": [{}, {}], "driver": driver, "toolkit": "1.20.1", "limits": {}}
        for node, driver in ((LIMITS, NEW), (MPS, OLD))
    }
    node = cluster.nodes[LIMITS]
    limits = ["--isolation=driver", f"--cgroup-root={root / node.cgroup}", "--on-isolation-mismatch=evict"]
    limits += ["--device-list-strategy=cdi-cri", f"--cdi-spec-dirs={node.cdi}", f"--metrics-port={METRICS[LIMITS]}"]
    args = {LIMITS: limits, MPS: [f"--mps-dir={mps_node.DIR}"]}
    running = Gangshare(cluster, machines, components=COMPONENTS, plugin_args=args)
    toolkit.specify(node.cdi, running.profiles[LIMITS], LIMITS, root)
    yield running.start()
    running.stop()


@pytest.fixture(autouse=True)
def tidy(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete_pods()


def a_pod(name: str, node: str = "", *, mem: int = 4, demands: bool = False, **fields: Any) -> Json:
    """A pod that prints its environment; on this node, if one is named."""
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    asked = DEMANDS if demands else {}
    return a_gpu_pod(name, mem=mem, annotations=asked, script="env; sleep infinity", **where, **fields)


def environment(sharing: Gangshare, pod: str) -> dict[str, str]:
    """That of the real container."""

    def printed() -> dict[str, str]:
        lines = sharing.cluster.pod_log(pod, container="main").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    return wait_for(printed, 30, f"log of {pod}")


def level(sharing: Gangshare, node: str) -> str:
    annotations = sharing.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations") or {}
    found = inventory.decode(annotations.get(names.GPUS))
    return str(found.enforced) if found else ""


def reaches(sharing: Gangshare, node: str, wanted: str) -> None:
    wait_for(lambda: level(sharing, node) == wanted, 30, f"{node} with {wanted}")


def metric(line: str, port: int) -> float:
    found = [each for each in get(port, "/metrics").splitlines() if each.startswith(line)]
    return sum(float(each.rsplit(" ", 1)[1]) for each in found)


def told(sharing: Gangshare, name: str, reason: str) -> str:
    """The message of that Event."""

    def found() -> str:
        return next((e["message"] for e in sharing.cluster.events(name) if e.get("reason") == reason), "")

    return wait_for(found, 30, f"Event {reason} of {name}")


def waits(sharing: Gangshare, pod: Json) -> str:
    """Create a pod that stays pending; returns why."""
    sharing.cluster.create_pod(pod)

    def refused() -> str:
        conditions = sharing.cluster.pod(pod["metadata"]["name"])["status"].get("conditions", [])
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    return wait_for(refused, 30, f"why {pod['metadata']['name']} waits")


def group_of(sharing: Gangshare, root: Path, pod: str) -> Path:
    """The real control group of the pod's container."""
    found = sharing.cluster.pod(pod)
    (status,) = found["status"]["containerStatuses"]
    key = Group(found["metadata"]["uid"], status["containerID"].removeprefix("containerd://"))
    return containers(root / sharing.cluster.nodes[found["spec"]["nodeName"]].cgroup)[key]


def limits(sharing: Gangshare) -> dict[str, dict[str, int]]:
    """What the driver keeps, in MiB by control group and GPU."""
    found: dict[str, dict[str, int]] = yaml.safe_load(sharing.profiles[LIMITS].read_text())["limits"]
    return found


def restart(plugin: Process) -> None:
    plugin.kill()
    plugin.start()


# -- limits of the driver

DRIVER, PROMISED = "memory enforced (driver), compute promised", "memory promised, compute promised"


def enforced(count: int) -> None:
    wait_for(lambda: metric(ENFORCED, METRICS[LIMITS]) == count, 30, f"{count} containers whose limit is read back")


def test_a_part_gets_a_limit_that_is_read_back_also_by_a_new_plugin(sharing: Gangshare, root: Path) -> None:
    reaches(sharing, LIMITS, DRIVER)
    running = sharing.run(a_pod("limited", demands=True))
    assert running["spec"]["nodeName"] == LIMITS
    env = environment(sharing, "limited")
    assert (env[names.MEMORY_REQUEST], env[names.MEMORY_LIMIT]) == ("4096", "4096")
    (uuid,) = sharing.annotated(running)["main"]
    assert env["INJECTED"] == uuid
    assert limits(sharing)[str(group_of(sharing, root, "limited"))] == {uuid: 4096}
    enforced(1)
    sharing.run(a_pod("whole", LIMITS, mem=0, whole=1, demands=True))
    assert names.MEMORY_LIMIT not in environment(sharing, "whole")
    restart(sharing.plugins[LIMITS])
    enforced(1)
    reaches(sharing, LIMITS, DRIVER)
    assert not [event for event in sharing.cluster.events("limited") if event.get("reason") == "IsolationMismatch"]


def test_a_node_without_the_driver_takes_nobody_who_demands_it_until_the_driver_is_there(sharing: Gangshare) -> None:
    reaches(sharing, LIMITS, DRIVER)
    toolkit.edit(sharing.profiles[LIMITS], lambda machine: machine.update(driver=OLD))
    reaches(sharing, LIMITS, PROMISED)
    why = waits(sharing, a_pod("waits", demands=True))
    assert "isolation" in why, why
    toolkit.edit(sharing.profiles[LIMITS], lambda machine: machine.update(driver="615.80.01"))
    assert sharing.cluster.wait_phase("waits", "Running")["spec"]["nodeName"] == LIMITS
    assert environment(sharing, "waits")[names.MEMORY_LIMIT] == "4096"


def test_a_container_without_its_limit_is_found_out_and_the_node_is_believed_no_more(
    sharing: Gangshare, root: Path
) -> None:
    reaches(sharing, LIMITS, DRIVER)
    node, profile = sharing.cluster.nodes[LIMITS], sharing.profiles[LIMITS]
    toolkit.specify(node.cdi, profile, LIMITS, root, hook=False)
    sharing.cluster.create_pod(a_pod("unlimited", demands=True))
    assert "has no memory limit on GPU" in told(sharing, "unlimited", "IsolationMismatch")
    told(sharing, "unlimited", "IsolationEvicted")
    reaches(sharing, LIMITS, PROMISED)
    assert "isolation" in waits(sharing, a_pod("next", demands=True))
    toolkit.specify(node.cdi, profile, LIMITS, root)
    restart(sharing.plugins[LIMITS])
    sharing.cluster.wait_phase("next", "Running")
    enforced(1)


def test_after_a_reboot_the_container_has_its_limit_again(sharing: Gangshare, root: Path) -> None:
    reaches(sharing, LIMITS, DRIVER)
    sharing.run(a_pod("stays", demands=True, restartPolicy="Always"))
    enforced(1)
    before = group_of(sharing, root, "stays")
    sharing.reboot(LIMITS)
    sharing.cluster.nodes[LIMITS].wait_ready()

    def again() -> bool:
        after = group_of(sharing, root, "stays")
        return after != before and str(after) in limits(sharing)

    wait_for(again, 60, "limit of the new container")
    enforced(1)
    reaches(sharing, LIMITS, DRIVER)
