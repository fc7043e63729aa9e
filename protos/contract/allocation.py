"""The GPUs of a pod: the pod annotation `gangshare.io/allocation`, which the extender writes in the Binding.

It names GPUs. The books charge the amounts of the pod's limits, so a forged amount has no effect. The API server merges
the Binding's annotations into the pod in the write of nodeName. Source: kube-apiserver, registry/core/pod/storage.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from protos.contract import codec, names
from protos.contract.bounds import CONTAINERS, GPUS_PER_NODE, NAME, START
from protos.contract.inventory import Index, Natural, Positive, Uuid
from protos.contract.isolation import Demanded
from protos.contract.objects import Name

Shares = Annotated[tuple["Share", ...], msgspec.Meta(max_length=GPUS_PER_NODE.most)]


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One container's part of one GPU. A whole GPU has its full memory and slices, and `whole`."""

    uuid: Uuid
    index: Index
    mem: Natural
    slices: Natural = 0
    whole: bool = False


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pod's gang at its start."""

    key: Annotated[str, msgspec.Meta(max_length=2 * NAME.most + 1)]
    epoch: Annotated[int, msgspec.Meta(ge=0, le=START.most)]
    size: Annotated[int, msgspec.Meta(ge=1, le=START.most)]


class Allocation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The GPUs of each container that requests GPUs, by container name, including init containers."""

    v: int
    unit_mib: Positive = msgspec.field(name="unitMiB")
    slices_per_gpu: Positive
    containers: Annotated[dict[Name, Shares], msgspec.Meta(max_length=CONTAINERS.most)]
    group: Group | None = None
    isolation: Demanded | None = None
    """What the node must enforce for the parts; None: nothing."""

    def uuids(self) -> frozenset[str]:
        return frozenset(share.uuid for shares in self.containers.values() for share in shares)


_annotation = codec.Annotation(names.ALLOCATION, Allocation)
decode, encode = _annotation.decode, _annotation.encode
