"""Manifests of the demo's pods and Jobs."""

from __future__ import annotations

from collections.abc import Mapping

from extender.cli.demo.trace import Recorded
from extender.sim.podspec import Object
from protos.contract import names

NAMESPACE = "default"
GPU_UNITS = 24
"""GiB of a GPU that the trace's shares refer to: half a GPU becomes 12 units and 50 slices."""
CPU_SHARE = 8
"""Divisor of the recorded CPU and memory, so that GPUs are the scarce resource."""
MIB = 1024 * 1024


def pod(recorded: Recorded) -> Object:
    """A recorded pod: a share of a GPU becomes memory and slices, whole GPUs stay whole."""
    requests = {
        "cpu": f"{max(1, recorded.cpu_milli // CPU_SHARE)}m",
        "memory": str(max(1, recorded.memory_mib // CPU_SHARE) * MIB),
    }
    limits = _gpus(recorded)
    resources = {"requests": requests, "limits": limits} if limits else {"requests": requests}
    return single(recorded.name, "openb", resources)


def single(name: str, app: str, resources: Object, annotations: Mapping[str, str] | None = None) -> Object:
    """A pod of its own, with one container."""
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": app}, "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(resources)}


def job(name: str, app: str, count: int, annotations: Mapping[str, str], resources: Object) -> Object:
    """An Indexed Job of this number of pods."""
    template = {
        "metadata": {"labels": {"app": app}, "annotations": dict(annotations)},
        "spec": {**_spec(resources), "restartPolicy": "Never"},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": template},
    }


def is_of(pod: Object, app: str) -> bool:
    """Whether the pod belongs to this app."""
    return bool((pod["metadata"].get("labels") or {}).get("app") == app)


def _spec(resources: Object) -> Object:
    return {
        "schedulerName": names.PROFILE,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "demo", "resources": resources}],
    }


def _gpus(recorded: Recorded) -> dict[str, str]:
    if not recorded.gpus:
        return {}
    if recorded.share_milli >= 1000:
        return {names.WHOLE_GPU: str(recorded.gpus)}
    mem, slices = (max(1, round(recorded.share_milli * whole / 1000)) for whole in (GPU_UNITS, 100))
    return {names.GPU_MEM: str(mem), names.GPU_SLICE: str(slices)}
