"""What a pod was given: the pod annotation `gangshare.io/allocation`, set on the Binding by the extender.

It says *which* GPUs; amounts are always charged from the pod's limits, so a forged amount gains nothing.
Sources: the Binding's annotations are merged into the pod in the same write as nodeName (kube-apiserver,
registry/core/pod/storage).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from protos.contract import codec, names
from protos.contract.bounds import CONTAINERS, GPUS_PER_NODE, NAME, START
from protos.contract.inventory import Index, Natural, Positive, Uuid
from protos.contract.objects import Name

Shares = Annotated[tuple["Share", ...], msgspec.Meta(max_length=GPUS_PER_NODE.most)]


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One container's part of one GPU. A whole GPU says its full memory and slices, and `whole`."""

    uuid: Uuid
    index: Index
    mem: Natural
    slices: Natural = 0
    whole: bool = False


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The gang that the pod started with."""

    key: Annotated[str, msgspec.Meta(max_length=2 * NAME.most + 1)]
    epoch: Annotated[int, msgspec.Meta(ge=0, le=START.most)]
    size: Annotated[int, msgspec.Meta(ge=1, le=START.most)]


class Allocation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The GPUs of each container that asks for any, by container name (init containers included)."""

    v: int
    unit_mib: Positive = msgspec.field(name="unitMiB")
    slices_per_gpu: Positive
    containers: Annotated[dict[Name, Shares], msgspec.Meta(max_length=CONTAINERS.most)]
    group: Group | None = None

    def uuids(self) -> frozenset[str]:
        return frozenset(share.uuid for shares in self.containers.values() for share in shares)


_decoder = msgspec.json.Decoder(Allocation)


def decode(text: str | None) -> Allocation | None:
    """The allocation in the annotation, None where absent; raises codec.ContractError."""
    return codec.decode(names.ALLOCATION, text, _decoder)


def encode(allocation: Allocation) -> str:
    """The annotation's text."""
    return codec.encode(allocation)
