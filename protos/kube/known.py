"""What is known of a collection: which objects there are, and what changes with each JSON of an object that comes."""

import sys
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Generic, TypeVar

import msgspec

from protos.contract.codec import BAD_JSON
from protos.kube.changes import Added, Change, Deleted, Modified, Ref, Undecodable

T = TypeVar("T")


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, gc=False):
    metadata: _Meta


_heads = msgspec.json.Decoder(_Head)


class Known(Generic[T]):
    """The objects of a collection that were seen and are not gone. It keeps names and UIDs, not the objects."""

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        self._decode = decode
        self._uids: dict[str, dict[str, str]] = {}
        """By namespace and name."""
        self.version = ""
        """The resourceVersion that was seen last."""

    def bookmark(self, raw: msgspec.Raw) -> None:
        """Nothing came up to this object's version; raises one of BAD_JSON."""
        self.version = _heads.decode(raw).metadata.resource_version

    def changes(self, raw: msgspec.Raw, *, gone: bool = False) -> Iterator[Change[T]]:
        """An object that is there: new, changed, or another one under a known name.

        `gone`: it was deleted, or does not match the selectors any more.
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
        yield Deleted(ref, decoded) if gone else (Modified if known == meta.uid else Added)(ref, decoded)

    def only(self, names: Mapping[str, Set[str]]) -> Iterator[Change[T]]:
        """These names by namespace are all that there is: the others are gone."""
        gone: list[Ref] = []
        for namespace, here in self._uids.items():
            there = names.get(namespace, frozenset())
            gone += [Ref(namespace, name, uid) for name, uid in here.items() if name not in there]
        for ref in gone:
            self._forget(ref)
            yield Deleted(ref, None)

    def _forget(self, ref: Ref) -> None:
        """The object is gone; another one under its name is not."""
        here = self._uids.get(ref.namespace, {})
        if here.get(ref.name) == ref.uid:
            del here[ref.name]
        if not here:
            self._uids.pop(ref.namespace, None)
