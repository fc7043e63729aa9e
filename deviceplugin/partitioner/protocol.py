"""What the plugin and the partitioner tell each other: one line of JSON each, on a connection of its own.

There is one request: all instances that pods of this node hold, by the names of their places (`protos.contract.mig`).
Asking again changes nothing, so a plugin that was ended in between asks again.
"""

from typing import Annotated

import msgspec

from deviceplugin.helper_lines import RefusalError, Version, read
from protos.contract import codec, mig
from protos.contract.bounds import MIG_HELD, MIG_PROFILES
from protos.contract.inventory import Natural, ProfileName, Slice, Uuid

DEFAULT_SOCKET = "/run/gangshare/partitioner/partitioner.sock"

Places = Annotated[tuple[Uuid, ...], msgspec.Meta(max_length=MIG_HELD.most)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All instances that pods of this node hold, or are about to get."""

    v: Version = codec.VERSION
    places: Places = ()
    keep: Places = ()
    """Instances that pods say they have, though the plugin has no record of it: these are not destroyed."""


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A profile that instances of a GPU can have, with the places that are left to it."""

    profile: ProfileName
    mem_mib: Natural
    size: Annotated[int, msgspec.Meta(ge=1, le=mig.MEMORY_SLICES)]
    starts: Annotated[tuple[Slice, ...], msgspec.Meta(max_length=mig.MEMORY_SLICES)]
    most: Annotated[int, msgspec.Meta(ge=1, le=mig.MEMORY_SLICES)]


Kinds = Annotated[tuple[Kind, ...], msgspec.Meta(max_length=MIG_PROFILES.most)]


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An instance that exists."""

    uuid: Uuid
    """As the driver names it: MIG-…"""
    gi: Number
    """ID of the GPU instance."""
    ci: Number
    """ID of the compute instance."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What there is now."""

    v: Version = codec.VERSION
    why: str = ""
    """Why nothing was done, "" if it was."""
    gpus: Annotated[dict[Uuid, Kinds], msgspec.Meta(max_length=mig.CUT_GPUS)] = {}
    """The GPUs that are given over, and what can be made of each."""
    unread: Annotated[tuple[Uuid, ...], msgspec.Meta(max_length=mig.CUT_GPUS)] = ()
    """GPUs that are given over, and do not tell their instances now."""
    others: Places = ()
    """UUIDs of instances on these GPUs that are not ours."""
    made: Annotated[dict[Uuid, Device], msgspec.Meta(max_length=MIG_HELD.most)] = {}
    """By place, those that exist."""
    refused: Annotated[dict[Uuid, str], msgspec.Meta(max_length=MIG_HELD.most)] = {}
    """By place, why an instance that is held does not exist."""


class PartitionError(RefusalError):
    """An instance is not made or destroyed; the message says why."""


_held = msgspec.json.Decoder(Held)
_answer = msgspec.json.Decoder(Answer)


def request(text: bytes) -> Held:
    """The request in a line; raises PartitionError."""
    return read(text, _held, PartitionError, "not understood")


def answer(text: bytes) -> Answer:
    """The answer in a line; raises PartitionError."""
    return read(text, _answer, PartitionError, "the partitioner's answer is not understood")
