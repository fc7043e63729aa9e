"""GPUs reserved for pending pods: the pod annotation `gangshare.io/reservation`.

The extender trusts the annotation only from itself and from operators (`gangshare defrag --apply`). It has GPUs and a
deadline. The amounts are those of the pods' requests, so it never reserves more than they need. One annotation can
have the rooms of several pods, so that a large gang needs few writes.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from protos.contract import codec, names
from protos.contract.bounds import CONTAINERS, GPUS_PER_NODE, ROOMS
from protos.contract.inventory import Uuid
from protos.contract.objects import Name
from protos.contract.timestamps import epoch_seconds

Uuids = Annotated[tuple[Uuid, ...], msgspec.Meta(max_length=GPUS_PER_NODE.most)]


class Room(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node, and the GPU UUIDs of each container that requests GPUs."""

    node: Name
    containers: Annotated[dict[Name, Uuids], msgspec.Meta(max_length=CONTAINERS.most)]


class Reservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rooms by pod UID, for this pod or other pods of its namespace."""

    v: int
    rooms: Annotated[dict[Name, Room], msgspec.Meta(max_length=ROOMS.most)]
    until: str
    """RFC 3339, in UTC: `2025-01-31T12:00:00Z`."""
    preempting: bool | None = None
    """The extender evicts pods of lower priority to free the rooms."""

    def __post_init__(self) -> None:
        epoch_seconds(self.until)


_annotation = codec.Annotation(names.RESERVATION, Reservation)
decode, encode = _annotation.decode, _annotation.encode
