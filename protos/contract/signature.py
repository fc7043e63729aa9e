"""What a node has and what is taken of it, as one value: equal for nodes on which everything fits alike.

Signatures are compared often, so of equal values there is one object, and most are told apart at a glance.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast
from weakref import WeakValueDictionary

import msgspec

from protos.contract import inventory as inv

Taken = tuple[int, int, int, int, bool]
"""Of a GPU: units, slices, pods that have it whole, pods that share it, and whether it is cordoned."""


class Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """What an inventory offers, whatever the names of its GPUs."""

    slices_per_gpu: int
    replicas: tuple[tuple[str, int], ...]
    state: str
    gpus: tuple[tuple[int, int, int, int, int, str, str, str], ...]
    links: tuple[inv.Link, ...]


@lru_cache(maxsize=1024)
def same(kind: Kind) -> Kind:
    """The one object for all equal kinds."""
    return kind


@lru_cache(maxsize=4096)
def taken(*of_gpu: int) -> Taken:
    """The one object for what is equally taken: most GPUs are idle, or taken whole."""
    return cast(Taken, of_gpu)


class Signature(msgspec.Struct, frozen=True, cache_hash=True, weakref=True):
    """What is taken of which GPUs, whatever the names of these."""

    kind: Kind
    taken: tuple[Taken, ...]


signatures: WeakValueDictionary[tuple[Kind, tuple[Taken, ...]], Signature] = WeakValueDictionary()
"""The one object for all equal signatures, as with kinds: those that somebody has. A key names no signature: it would
keep it."""
