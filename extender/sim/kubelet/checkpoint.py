"""``kubelet_internal_checkpoint``: the kubelet's file of the devices of each container."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from protos.contract import names
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api

_NO_NUMA = "-1"


class Grant(msgspec.Struct, frozen=True):
    """Devices of one resource allocated to one container, with the plugin's answer."""

    ids: frozenset[str]
    response: api.ContainerAllocateResponse


Grants = dict[str, dict[str, dict[str, Grant]]]  # pod UID → container → resource


def each(grants: Grants) -> Iterator[tuple[str, str, str, Grant]]:
    """Pod UID, container, resource and grant."""
    for uid, containers in grants.items():
        for container, resources in containers.items():
            for resource, grant in resources.items():
                yield uid, container, resource, grant


def write(folder: Path, grants: Grants, registered: dict[str, set[str]]) -> None:
    """Replace the file atomically."""
    entries = [
        {
            "PodUID": uid,
            "ContainerName": container,
            "ResourceName": resource,
            "DeviceIDs": {_NO_NUMA: sorted(grant.ids)},
            "AllocResp": base64.b64encode(grant.response.SerializeToString()).decode(),
        }
        for uid, container, resource, grant in each(grants)
    ]
    devices = {resource: sorted(ids) for resource, ids in registered.items()}
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": devices}
    body = {"Data": data, "Checksum": zlib.crc32(msgspec.json.encode(data))}
    path = folder / names.KUBELET_CHECKPOINT
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(body))
    new.replace(path)


def read(folder: Path) -> tuple[Grants, list[str]]:
    """The grants and the registered resource names; both empty if there is no file."""
    path = folder / names.KUBELET_CHECKPOINT
    if not path.exists():
        return {}, []
    data: dict[str, Any] = msgspec.json.decode(path.read_bytes())["Data"]
    grants: Grants = {}
    for entry in data["PodDeviceEntries"] or ():
        response = api.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
        ids = frozenset(device for group in entry["DeviceIDs"].values() for device in group)
        container = grants.setdefault(entry["PodUID"], {}).setdefault(entry["ContainerName"], {})
        container[entry["ResourceName"]] = Grant(ids, response)
    return grants, list(data["RegisteredDevices"])
