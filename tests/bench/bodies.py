"""Nodes and pods as a real cluster has them, as JSON objects of 3 to 6 KB: what is never read has to be skipped too."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from protos.contract import inventory, names
from protos.contract.inventory import Gpu, Inventory, Link

Json = dict[str, Any]
Limits = Mapping[str, int]
"""What a container asks, by resource name."""

GPUS, UNITS = 8, 79
"""GPUs of a node, and units of memory of each (an H100 with units of 1 GiB)."""
RACK = "example.com/rack"
"""The label that says in which rack a node is."""
_MADE = "2026-01-01T00:00:00Z"
_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


def _uid(text: str) -> str:
    return str(uuid.uuid5(_SPACE, text))


def gpus_of(node: str) -> Inventory:
    """Eight H100 that are all joined by NVLink."""
    gpus = tuple(
        Gpu(
            index=i, minor=i, uuid=f"GPU-{_uid(f'{node}/{i}')}", mem=UNITS, mem_mib=81_559, clock_mhz=1980, cc="9.0",
            model="NVIDIA H100 80GB HBM3", numa=i // 4, pci=f"00000000:{16 + 16 * i:02X}:00.0",
        )
        for i in range(GPUS)
    )  # fmt: skip
    links: tuple[Link, ...] = tuple((i, j, "NV18") for i in range(GPUS) for j in range(i + 1, GPUS))
    return Inventory(v=1, unit_mib=1024, slices_per_gpu=100, gpus=gpus, links=links)


def node(name: str, rack: str = "rack-000") -> Json:
    """A ready node, as its kubelet registered it and our plugin annotated it."""
    amounts = {
        "cpu": "192", "memory": "2113442652Ki", "ephemeral-storage": "1843269236Ki", "pods": "250",
        names.GPU_MEM: str(GPUS * UNITS), names.GPU_SLICE: str(GPUS * 100), names.WHOLE_GPU: str(GPUS),
    }  # fmt: skip
    labels = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "p5.48xlarge", "topology.kubernetes.io/zone": "eu-central-1a",
        RACK: rack,
    }  # fmt: skip
    conditions = [
        {
            "type": kind, "status": status, "reason": reason, "message": f"the kubelet says {reason}",
            "lastHeartbeatTime": _MADE, "lastTransitionTime": _MADE,
        }
        for kind, status, reason in (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID"),
            ("Ready", "True", "KubeletReady"),
        )
    ]  # fmt: skip
    images = [
        {"names": [f"registry.example.com/team/image-{i}@sha256:{_uid(str(i)) * 2}"], "sizeBytes": 10**9 + i}
        for i in range(30)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {names.GPUS: inventory.encode(gpus_of(name))}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images},
    }


def pod(name: str, limits: Limits, *, scheduler: str = names.PROFILE) -> Json:
    """A pod with one container `main`, as a Job's controller would create it."""
    env = [{"name": f"SETTING_{i}", "value": f"the value of setting number {i}"} for i in range(12)]
    main = {
        "name": "main",
        "image": "registry.example.com/team/trainer:2026.1",
        "command": ["python", "-m", "trainer", "--config", "/etc/trainer/config.yaml"],
        "env": env,
        "resources": {
            "limits": {resource: str(amount) for resource, amount in limits.items()},
            "requests": {"cpu": "100m", "memory": "64Mi"},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/trainer"}, {"name": "scratch", "mountPath": "/scratch"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
    }
    spec = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "tolerations": [{"key": names.WHOLE_GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "config", "configMap": {"name": "trainer"}}, {"name": "scratch", "emptyDir": {}}],
        "containers": [main],
    }
    labels = {"app": "trainer", "batch.kubernetes.io/job-name": name, "team": "vision"}
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def stored(made: Json) -> Json:
    """The pod as the API server shows it: with a UID, and who wrote which field."""
    metadata = {**made["metadata"], "uid": _uid(made["metadata"]["name"]), "resourceVersion": "1"}
    fields = {"f:metadata": _fields(made["metadata"]), "f:spec": _fields(made["spec"])}
    entry = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": _MADE}
    metadata |= {"managedFields": [{**entry, "fieldsType": "FieldsV1", "fieldsV1": fields}]}
    return {**made, "metadata": {**metadata, "creationTimestamp": _MADE}, "status": {"phase": "Pending"}}


def running(pending: Json, node: str, annotations: Mapping[str, str]) -> Json:
    """The same pod once it was bound to `node` with these annotations and its container runs."""
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    container = {
        "name": "main", "ready": True, "started": True, "restartCount": 0, "state": {"running": {"startedAt": _MADE}},
        "image": "registry.example.com/team/trainer:2026.1", "containerID": f"containerd://{_uid(node) * 2}",
    }  # fmt: skip
    status = {
        "phase": "Running", "startTime": _MADE, "podIP": "10.1.2.3", "hostIP": "10.0.0.1", "qosClass": "Burstable",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": _MADE} for kind in kinds],
        "containerStatuses": [container],
    }  # fmt: skip
    metadata = {**pending["metadata"], "annotations": {**pending["metadata"]["annotations"], **annotations}}
    return {**pending, "metadata": metadata, "spec": {**pending["spec"], "nodeName": node}, "status": status}


def _fields(value: Any) -> Json:
    """The FieldsV1 form of an object."""
    if not isinstance(value, dict):
        return {}
    return {f"f:{key}": _fields(inner) for key, inner in value.items()}
