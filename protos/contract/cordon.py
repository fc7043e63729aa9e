"""The node annotation gangshare.io/cordoned-gpus: indexes or UUIDs of GPUs, separated by commas."""

from __future__ import annotations

from collections.abc import Iterable

from protos.contract import mig, names
from protos.contract.inventory import Gpu, Inventory
from protos.contract.printable import brief
from protos.contract.reason import Reason, listed

UNREADABLE = "CordonUnreadable"
"""Code of the reason."""
NAMED, SHOWN = 8, 40
"""The most entries that a sentence names, and characters of each."""


def marks(text: str) -> frozenset[str]:
    """The entries of the annotation's value."""
    return frozenset(entry.strip() for entry in text.split(",") if entry.strip())


def covered(entries: frozenset[str], gpus: Iterable[Gpu]) -> frozenset[str]:
    """The UUIDs of the GPUs that the entries name, with their MIG instances; one of these is named like `3:1`."""
    if not entries:
        return frozenset()
    every = tuple(gpus)
    named = {gpu.index: gpu.uuid for gpu in every if gpu.uuid in entries or mig.shown(gpu.index) in entries}
    for gpu in every:
        parent = mig.gpu_of(gpu.index) if gpu.mig else None
        if parent is not None and (parent in named or str(parent) in entries):
            named[gpu.index] = gpu.uuid
    return frozenset(named.values())


def unreadable(text: str, inventory: Inventory) -> Reason | None:
    """The entries that name no GPU of the node, None if there are none."""
    indexes = [mig.shown(gpu.index) for gpu in inventory.gpus]
    of_instances = (str(mig.gpu_of(gpu.index)) for gpu in inventory.gpus if gpu.mig)
    unknown = marks(text).difference((gpu.uuid for gpu in inventory.gpus), indexes, of_instances)
    if not unknown:
        return None
    named = listed([repr(brief(entry, SHOWN)) for entry in sorted(unknown)], NAMED)
    expected = f"indexes or UUIDs of GPUs: {listed(indexes, NAMED)} or their UUIDs"
    if not indexes:
        expected = "nothing: the node has no GPUs"
    return Reason(UNREADABLE, f"{names.CORDONED_GPUS} names {named}: expected {expected}")
