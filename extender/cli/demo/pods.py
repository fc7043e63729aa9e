"""Kubernetes pods made of recorded ones: a share of a GPU becomes memory and slices, whole GPUs stay whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.cli.demo.trace import Recorded
from protos.contract import names

NAMESPACE = "default"
GPU_UNITS = 24
"""GiB of the GPU that a share in the trace is taken of: half of it asks 12 units and 50 slices."""
CPU_SHARE = 8
"""The recorded CPUs and memory are divided by this, so that GPUs are what is short."""
MIB = 1024 * 1024


def manifest(pod: Recorded) -> dict[str, Any]:
    """The pod's manifest. It ends as soon as it is told to."""
    requests = {
        "cpu": f"{max(1, pod.cpu_milli // CPU_SHARE)}m",
        "memory": str(max(1, pod.memory_mib // CPU_SHARE) * MIB),
    }
    limits = _gpus(pod)
    resources = {"requests": requests, "limits": limits} if limits else {"requests": requests}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": NAMESPACE, "labels": {"app": "openb"}},
        "spec": spec(resources),
    }


def spec(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Of a pod with one container that asks these resources."""
    return {
        "schedulerName": names.PROFILE,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "demo", "resources": resources}],
    }


def _gpus(pod: Recorded) -> dict[str, str]:
    if not pod.gpus:
        return {}
    if pod.share_milli >= 1000:
        return {names.WHOLE_GPU: str(pod.gpus)}
    mem, slices = (max(1, round(pod.share_milli * all_of_it / 1000)) for all_of_it in (GPU_UNITS, 100))
    return {names.GPU_MEM: str(mem), names.GPU_SLICE: str(slices)}
