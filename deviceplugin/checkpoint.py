"""The kubelet's own record of the devices it gave: the file `kubelet_internal_checkpoint` in its plugin folder.

It names pods by UID, has init containers too, and keeps each Allocate's answer. So a restarted plugin knows the answers
given before. Source: k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from protos import files
from protos.contract.bounds import CHECKPOINT
from protos.contract.codec import BAD_JSON
from protos.files import FileError
from protos.kubelet.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as api


class Entry(NamedTuple):
    """The devices of one resource that one container got, and the environment in the answer."""

    uid: str
    container: str
    resource: str
    ids: tuple[str, ...]
    envs: dict[str, str]


class _Entry(msgspec.Struct, frozen=True):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: dict[str, list[str]] | None = msgspec.field(name="DeviceIDs", default=None)
    """By NUMA node, -1 if unknown."""
    answer: bytes | None = msgspec.field(name="AllocResp", default=None)


class _Data(msgspec.Struct, frozen=True):
    entries: list[_Entry] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _File(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data")


_decoder = msgspec.json.Decoder(_File)


def read(path: Path) -> tuple[Entry, ...]:
    """The entries of the file, none if it does not exist; raises FileError."""
    return files.read(path, parse, CHECKPOINT) if files.stamp(path) else ()


def parse(content: bytes) -> tuple[Entry, ...]:
    """The entries in the file's content; raises FileError."""
    try:
        file = _decoder.decode(content)
        return tuple(
            Entry(
                uid=entry.pod_uid,
                container=entry.container,
                resource=entry.resource,
                ids=tuple(device for ids in (entry.ids or {}).values() for device in ids),
                envs=dict(api.ContainerAllocateResponse.FromString(entry.answer or b"").envs),
            )
            for entry in file.data.entries or ()
        )
    except (DecodeError, *BAD_JSON) as error:
        raise FileError(f"no checkpoint of the kubelet's device manager: {error}") from error
