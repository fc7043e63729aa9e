"""Rooms kept for pods that wait: the pod annotation `gangshare.io/reservation`, set by whoever makes those rooms.

It says which GPUs and until when; amounts are those that the pods ask, so it never keeps more than they would take. One
annotation speaks for several pods, so that the rooms of a large gang are asked for by few writes.
"""

from __future__ import annotations

import msgspec

from protos.contract import codec, names
from protos.contract.objects import epoch_seconds


class Room(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node and, of each container that asks for GPUs, their UUIDs."""

    node: str
    containers: dict[str, tuple[str, ...]]


class Reservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rooms by the UIDs of the pods that they are for: this one, or others of its namespace."""

    v: int
    rooms: dict[str, Room]
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
