"""Room kept for a pod that waits: the pod annotation `gangshare.io/reservation`, set by whoever makes that room.

It says which GPUs and until when; amounts are those that the pod asks, so it never keeps more than the pod would take.
"""

from __future__ import annotations

import msgspec

from protos.contract import codec, names
from protos.contract.objects import epoch_seconds


class Reservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node and, of each container that asks for GPUs, their UUIDs."""

    v: int
    node: str
    containers: dict[str, tuple[str, ...]]
    until: str
    """RFC 3339, in UTC: `2025-01-31T12:00:00Z`."""
    preempting: bool | None = None
    """The extender makes the room itself, by evicting pods of lower priority."""

    def __post_init__(self) -> None:
        epoch_seconds(self.until)


_decoder = msgspec.json.Decoder(Reservation)


def decode(text: str | None) -> Reservation | None:
    """The reservation in the annotation, None where absent; raises codec.ContractError."""
    return codec.decode(names.RESERVATION, text, _decoder)


def encode(reservation: Reservation) -> str:
    """The annotation's text."""
    return codec.encode(reservation)
