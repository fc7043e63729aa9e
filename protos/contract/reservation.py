"""Rooms kept for pods that wait: the pod annotation `gangshare.io/reservation`, set by those that make the rooms.

The extender writes it, or an operator by `gangshare defrag --apply`; it is believed of nobody else. It says which GPUs
and until when; amounts are those that the pods ask, so it never keeps more than they would take. One annotation speaks
for several pods, so that the rooms of a large gang are asked for by few writes.
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
    """A node and, of each container that asks for GPUs, their UUIDs."""

    node: Name
    containers: Annotated[dict[Name, Uuids], msgspec.Meta(max_length=CONTAINERS.most)]


class Reservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rooms by the UIDs of the pods that they are for: this one, or others of its namespace."""

    v: int
    rooms: Annotated[dict[Name, Room], msgspec.Meta(max_length=ROOMS.most)]
    until: str
    """RFC 3339, in UTC: `2025-01-31T12:00:00Z`."""
    preempting: bool | None = None
    """The extender makes the rooms itself, by evicting pods of lower priority."""

    def __post_init__(self) -> None:
        epoch_seconds(self.until)


_decoder = msgspec.json.Decoder(Reservation)


def decode(text: str | None) -> Reservation | None:
    """The reservation in the annotation, None where absent; raises codec.ContractError."""
    return codec.decode(names.RESERVATION, text, _decoder)


def encode(reservation: Reservation) -> str:
    """The annotation's text."""
    return codec.encode(reservation)
