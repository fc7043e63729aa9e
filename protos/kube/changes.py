"""The state of a collection, and its events: one per change of an object, and a mark after each listing.

Objects have the type that the reflector's decoder returns.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import msgspec

from protos.contract.codec import BAD_JSON

T = TypeVar("T")


class Ref(NamedTuple):
    """The identity of an object; the namespace is empty for cluster-scoped ones."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """The present state of an object; after a list also without a change."""

    ref: Ref
    object: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """A deleted object; its last state is None if no watch saw the deletion."""

    ref: Ref
    last: T | None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that cannot be decoded; a known object keeps its former state."""

    ref: Ref | None
    """None if its metadata cannot be decoded."""
    raw: bytes
    error: Exception


@dataclass(frozen=True, slots=True)
class Listed:
    """The end of a listing: all objects as of this resourceVersion, or later, have been delivered."""

    resource_version: str


Change = Seen[T] | Deleted[T] | Undecodable
Event = Change[T] | Listed


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, gc=False):
    metadata: _Meta


_heads = msgspec.json.Decoder(_Head)


class Known(Generic[T]):
    """The known objects of a collection: their names and UIDs, without the objects."""

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        self._decode = decode
        self._uids: dict[str, dict[str, str]] = {}
        """By namespace and name."""
        self.version = ""
        """The last resourceVersion."""

    def bookmark(self, raw: msgspec.Raw) -> None:
        """Take the resourceVersion of a bookmark; raises one of BAD_JSON."""
        self.version = _heads.decode(raw).metadata.resource_version

    def changes(self, raw: msgspec.Raw, *, gone: bool = False) -> Iterator[Change[T]]:
        """The changes by an object that is new, changed, or a replacement under a known name.

        `gone`: it has been deleted, or no longer matches the selectors.
        """
        try:
            meta = _heads.decode(raw).metadata
        except BAD_JSON as error:
            yield Undecodable(None, bytes(raw), error)
            return
        self.version = meta.resource_version
        ref = Ref(sys.intern(meta.namespace), meta.name, meta.uid)
        known = self._uids.get(ref.namespace, {}).get(ref.name)
        if gone:
            self._forget(ref)
        else:
            if known is not None and known != ref.uid:
                yield Deleted(Ref(ref.namespace, ref.name, known), None)
            self._uids.setdefault(ref.namespace, {})[ref.name] = ref.uid
        try:
            decoded = self._decode(raw)
        except BAD_JSON as error:
            yield Deleted(ref, None) if gone else Undecodable(ref, bytes(raw), error)
            return
        yield Deleted(ref, decoded) if gone else Seen(ref, decoded)

    def only(self, names: Mapping[str, Set[str]]) -> Iterator[Change[T]]:
        """The deletions of all known objects except for these names by namespace."""
        gone: list[Ref] = []
        for namespace, uids in self._uids.items():
            present = names.get(namespace, frozenset())
            gone += [Ref(namespace, name, uid) for name, uid in uids.items() if name not in present]
        for ref in gone:
            self._forget(ref)
            yield Deleted(ref, None)

    def _forget(self, ref: Ref) -> None:
        """Remove the object unless another one has its name."""
        uids = self._uids.get(ref.namespace, {})
        if uids.get(ref.name) == ref.uid:
            del uids[ref.name]
        if not uids:
            self._uids.pop(ref.namespace, None)
