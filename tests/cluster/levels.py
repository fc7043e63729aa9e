"""What tests of isolation read on a real cluster: levels, metrics, Events, and the control groups of containers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deviceplugin.cgroups import Group, containers
from protos.contract import inventory, names
from tests.cluster import assets, cgroups, needed
from tests.cluster.api import Json
from tests.cluster.gangshare import Gangshare, a_gpu_pod, get
from tests.cluster.process import Process, wait_for

DEMANDS = {names.ISOLATION: "memory"}
PROMISED = "memory promised, compute promised"
LOOK = "env; sleep infinity"
ENFORCED = 'gangshare_plugin_isolated_containers{state="enforced"}'
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"


def unified_root() -> Path:
    """The machine's hierarchy of cgroup v2; without one, the test is skipped."""
    found = cgroups.unified()
    if found is None:
        pytest.skip("needs cgroup v2, also beside v1")
    return found


def containerd_with_cdi() -> Path:
    """The folder of a containerd that knows CDI; without one, the test is skipped, but not in CI."""
    with needed.or_skip():
        return assets.containerd_with_cdi()


def a_pod(name: str, node: str = "", *, mem: int = 4, demands: bool = False, script: str = LOOK, **fields: Any) -> Json:
    """A pod that prints its environment; on this node, if one is named."""
    where: Json = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    asked = DEMANDS if demands else {}
    return a_gpu_pod(name, mem=mem, annotations=asked, script=script, **where, **fields)


def a_replica_set(name: str, pod: Json) -> Json:
    """A controller that keeps one such pod, with the label `app`."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def environment(sharing: Gangshare, pod: str) -> dict[str, str]:
    """That of the real container."""

    def printed() -> dict[str, str]:
        lines = sharing.cluster.pod_log(pod, container="main").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    return wait_for(printed, 30, f"log of {pod}")


def reaches(sharing: Gangshare, node: str, wanted: str) -> None:
    """Wait until the node publishes this level."""

    def published() -> bool:
        annotations = sharing.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"].get("annotations") or {}
        found = inventory.decode(annotations.get(names.GPUS))
        assert found
        assert str(found.enforced) == wanted, found.isolation
        return True

    wait_for(published, 60, f"{node} with {wanted}")


def metric(line: str, port: int) -> float:
    found = [each for each in get(port, "/metrics").splitlines() if each.startswith(line)]
    return sum(float(each.rsplit(" ", 1)[1]) for each in found)


def enforced(count: int, port: int) -> None:
    wait_for(lambda: metric(ENFORCED, port) == count, 30, f"{count} containers whose limit is read back")


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


def process_of(sharing: Gangshare, root: Path, pod: str) -> tuple[str, int]:
    """The GPU of the pod's container, and the number of its real process."""
    (uuid,) = sharing.annotated(sharing.cluster.pod(pod))["main"]
    return uuid, int((group_of(sharing, root, pod) / "cgroup.procs").read_text().split()[0])


def running(sharing: Gangshare, app: str) -> dict[str, Mapping[str, Any]]:
    """The pods of a controller that run, by container ID."""
    found = [pod for pod in sharing.cluster.pods("default", f"app={app}") if runs(pod)]
    return {pod["status"]["containerStatuses"][0]["containerID"]: pod for pod in found}


def runs(pod: Json) -> bool:
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def restart(process: Process) -> None:
    process.kill()
    process.start()
