"""Signatures: GPUs and usage of a node as one value, equal for nodes on which the same pods fit.

Signatures are compared often. Equal ones are one object, so most comparisons only compare identities.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast
from weakref import WeakValueDictionary

import msgspec

from protos.contract import inventory as inv

Taken = tuple[int, int, int, int, bool]
"""Usage of a GPU: units, slices, pods that hold it whole, pods that share it, and whether it is cordoned."""


class Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """The content of an inventory without the names of its GPUs."""

    slices_per_gpu: int
    replicas: tuple[tuple[str, int], ...]
    state: str
    gpus: tuple[tuple[int, int, int, int, int, str, str, str, str], ...]
    """Of each: index, units, MiB, clock, NUMA node, compute capability, model, MIG profile, health."""
    links: tuple[inv.Link, ...]
    isolation: tuple[str, str] | None = None
    """Of memory and compute."""
    layouts: tuple[inv.Layout, ...] = ()
    """What MIG instances can be made on demand."""
    single: bool = False
    """Requests for whole GPUs get MIG instances."""


def of_inventory(inventory: inv.Inventory) -> Kind:
    """Its content; one object for all equal ones."""
    return _same(
        Kind(
            inventory.slices_per_gpu,
            tuple(sorted(inventory.replicas.items())),
            inventory.state,
            tuple(
                (g.index, g.mem, g.mem_mib, g.clock_mhz, g.numa, g.cc, g.model, g.profile, g.health)
                for g in inventory.gpus
            ),
            inventory.links,
            inventory.isolation.kind if inventory.isolation is not None else None,
            inventory.layouts,
            inventory.single,
        )
    )


@lru_cache(maxsize=1024)
def _same(kind: Kind) -> Kind:
    return kind


@lru_cache(maxsize=4096)
def taken(*of_gpu: int) -> Taken:
    """The one object of all equal usages: most GPUs are idle or wholly in use."""
    return cast(Taken, of_gpu)


class Signature(msgspec.Struct, frozen=True, cache_hash=True, weakref=True):
    """A kind of inventory and the usage of its GPUs."""

    kind: Kind
    taken: tuple[Taken, ...]


signatures: WeakValueDictionary[tuple[Kind, tuple[Taken, ...]], Signature] = WeakValueDictionary()
"""The one object of all equal signatures that are in use. Keys must not refer to signatures, which would keep them."""
