"""A stand-in of dcgm-exporter: which series of a GPU it makes from a PodResources List.

It follows the mapping of internal/pkg/transformation/kubernetes.go (4.4 to 4.8): which resources count, the forms of a
device ID, one pod for a GPU or, with KUBERNETES_VIRTUAL_GPUS, all of them. In that mode a part's name stays for the
further IDs of the same entry.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from protos.kubelet.podresources.v1 import podresources_v1_pb2 as api

RESOURCE, MIG_RESOURCE, MIG = "nvidia.com/gpu", "nvidia.com/mig-", "MIG-"
GKE_MIG = re.compile(r"nvidia(\d+)/gi(\d+)(?:/vgpu\d+)?")
GKE_PART, PART = "/vgpu", "::"


class Series(NamedTuple):
    """The labels of one series: the GPU and whose it is, empty where it is nobody's."""

    gpu: str
    namespace: str = ""
    pod: str = ""
    container: str = ""
    vgpu: str = ""


def series(
    listed: Iterable[api.PodResources],
    gpus: Sequence[str],
    *,
    virtual: bool = True,
    names: Collection[str] = (),
    instances: Mapping[str, str] | None = None,
) -> list[Series]:
    """The series of one metric, for each of these GPUs (or instances).

    `virtual` is KUBERNETES_VIRTUAL_GPUS, `names` NVIDIA_RESOURCE_NAMES; `instances` is what NVML knows of MIG devices.
    """
    owners: dict[str, list[Series]] = {}
    for key, owner in _owners(listed, names, instances or {}):
        owners.setdefault(key, []).append(owner)
    found = []
    for gpu in gpus:
        of_gpu = [owner._replace(gpu=gpu) for owner in owners.get(gpu, [Series(gpu)])]
        found += of_gpu if virtual else [of_gpu[-1]._replace(vgpu="")]
    return found


def _owners(
    listed: Iterable[api.PodResources], names: Collection[str], instances: Mapping[str, str]
) -> Iterator[tuple[str, Series]]:
    for pod in listed:
        for container in pod.containers:
            for entry in container.devices:
                name = entry.resource_name
                if name != RESOURCE and name not in names and not name.startswith(MIG_RESOURCE):
                    continue
                part = ""
                for device in entry.device_ids:
                    part = _part(device) or part
                    for key in _keys(device, instances):
                        yield key, Series("", pod.namespace, pod.name, container.name, part)


def _part(device: str) -> str:
    separator = GKE_PART if GKE_PART in device else PART
    return device.split(separator)[1] if separator in device else ""


def _keys(device: str, instances: Mapping[str, str]) -> list[str]:
    """The names under which a GPU's metrics find this device."""
    if device.startswith(MIG):
        known = [instances[device]] if device in instances else []
        return [*known, device.removeprefix(MIG), device]
    if match := GKE_MIG.fullmatch(device):
        return [f"{match[1]}-{match[2]}", device]
    for separator in (GKE_PART, PART):
        if separator in device:
            return [device.split(separator)[0], device]
    return [device]
