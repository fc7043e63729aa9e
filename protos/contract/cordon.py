"""The node annotation gangshare.io/cordoned-gpus: indexes or UUIDs of GPUs, separated by commas."""

from __future__ import annotations

from protos.contract import names
from protos.contract.inventory import Inventory
from protos.contract.printable import brief
from protos.contract.reason import Reason, listed

UNREADABLE = "CordonUnreadable"
"""Code of the reason."""
NAMED, SHOWN = 8, 40
"""The most entries that a sentence names, and characters of each."""


def marks(text: str) -> frozenset[str]:
    """The entries of the annotation's value."""
    return frozenset(entry.strip() for entry in text.split(",") if entry.strip())


def unreadable(text: str, inventory: Inventory) -> Reason | None:
    """The entries that name no GPU of the node, None if there are none."""
    indexes = sorted(gpu.index for gpu in inventory.gpus)
    unknown = marks(text).difference((gpu.uuid for gpu in inventory.gpus), map(str, indexes))
    if not unknown:
        return None
    named = listed([repr(brief(entry, SHOWN)) for entry in sorted(unknown)], NAMED)
    expected = f"indexes or UUIDs of GPUs: {listed(map(str, indexes), NAMED)} or their UUIDs"
    if not indexes:
        expected = "nothing: the node has no GPUs"
    return Reason(UNREADABLE, f"{names.CORDONED_GPUS} names {named}: expected {expected}")
