"""Pod and node status as the kubelet writes them. Pure but for timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from extender.sim import podspec
from extender.sim.kubelet.runtime import Container
from extender.sim.podspec import Object

_RESERVED = 100 * 1024**2  # bytes of memory reserved for the system: capacity - allocatable


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated node. ``profile`` names its fake GPUs; without one no plugin runs on it.

    ``annotations`` and ``extended`` resources declare GPUs without a plugin, which is cheap for many nodes. The kubelet
    counts these resources, but its containers get no devices.
    """

    name: str
    profile: str = ""
    cpu: str = "64"
    memory: str = "256Gi"
    pods: int = 110
    labels: dict[str, str] = {}
    taints: tuple[dict[str, str], ...] = ()
    annotations: dict[str, str] = {}
    extended: dict[str, str] = {}


def node_object(spec: NodeSpec) -> Object:
    """The Node as the kubelet creates it."""
    labels = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "metadata": {"name": spec.name, "labels": {**labels, **spec.labels}, "annotations": dict(spec.annotations)},
        "spec": {"taints": list(spec.taints)} if spec.taints else {},
        "status": node_status(spec, {}),
    }


def node_status(spec: NodeSpec, devices: Mapping[str, tuple[int, int]]) -> Object:
    """The node status with these devices (capacity, allocatable)."""
    memory = podspec.amount("memory", spec.memory)
    capacity = {"cpu": spec.cpu, "memory": str(memory), "pods": str(spec.pods), **spec.extended}
    conditions = [
        _node_condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        _node_condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        _node_condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        _node_condition("Ready", "True", "KubeletReady"),
    ]
    return {
        "capacity": capacity | {r: str(total) for r, (total, _) in devices.items()},
        "allocatable": {**capacity, "memory": str(memory - _RESERVED)} | {r: str(n) for r, (_, n) in devices.items()},
        "conditions": conditions,
        "addresses": [{"type": "Hostname", "address": spec.name}, {"type": "InternalIP", "address": "127.0.0.1"}],
        "nodeInfo": {"kubeletVersion": "v1.34.4", "operatingSystem": "linux", "architecture": "amd64"},
    }


def _node_condition(kind: str, status: str, reason: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": podspec.timestamp()}


def rejected(reason: str, message: str) -> Object:
    """The status of a pod that was rejected at admission."""
    now = podspec.timestamp()
    return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "startTime": now}


def of_pod(pod: Object, containers: Mapping[str, Container], restarts: Mapping[str, int]) -> Object:
    """The status of an admitted pod; a container that is not in ``containers`` has not started yet."""
    states: dict[str, Any] = {"initContainerStatuses": [], "containerStatuses": []}
    for spec, init in podspec.containers(pod):
        field = "initContainerStatuses" if init else "containerStatuses"
        states[field].append(_container(spec, containers.get(spec["name"]), restarts.get(spec["name"], 0)))
    apps = [containers.get(c["name"]) for c in pod["spec"]["containers"]]
    started = all(a is not None for a in apps)
    up = all(a is not None and a.exit_code is None for a in apps)
    conditions = {"Initialized": started, "Ready": up, "ContainersReady": up}
    status = {
        "phase": _phase(pod, apps),
        "startTime": pod["status"].get("startTime") or podspec.timestamp(),
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "conditions": [podspec.turned(pod, kind, str(good)) for kind, good in conditions.items()],
        **states,
    }
    return status if states["initContainerStatuses"] else {k: v for k, v in status.items() if not k.startswith("init")}


def _phase(pod: Object, apps: list[Container | None]) -> str:
    started = [a for a in apps if a is not None]
    if len(started) < len(apps):
        return "Pending"
    codes = [a.exit_code for a in started]
    policy = pod["spec"]["restartPolicy"]
    if any(code is None for code in codes) or (policy == "Always" and not podspec.terminating(pod)):
        return "Running"
    return "Failed" if any(codes) else "Succeeded"


def _container(spec: Object, container: Container | None, restarts: int) -> Object:
    state: Object = {"waiting": {"reason": "ContainerCreating"}}
    if container and container.exit_code is None:
        state = {"running": {"startedAt": container.started}}
    elif container:
        reason = "Error" if container.exit_code else "Completed"
        state = {"terminated": {"exitCode": container.exit_code, "reason": reason, "startedAt": container.started}}
    ready = container is not None and container.exit_code is None
    created = {"containerID": f"containerd://{container.id}"} if container else {}
    return {
        **created,
        "name": spec["name"],
        "image": spec.get("image", ""),
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "containerID": f"containerd://{container.id}" if container else "",
        "state": state,
    }
