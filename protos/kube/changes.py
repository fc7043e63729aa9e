"""What a reflector tells of a collection: one event for each change of an object, and a mark after each listing.

Objects are of the type that the reflector's decoder makes.
"""

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Ref(NamedTuple):
    """Which object; the namespace is empty for cluster-scoped ones."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Added(Generic[T]):
    """An object not known before."""

    ref: Ref
    object: T


@dataclass(frozen=True, slots=True)
class Modified(Generic[T]):
    """A known object as it is now; after a relist also those that did not change."""

    ref: Ref
    object: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """A known object that is no more; its last state is None where nobody watched when it went."""

    ref: Ref
    last: T | None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that the decoder refused; a known one keeps its former state."""

    ref: Ref | None
    """None if not even its metadata can be read."""
    raw: bytes
    error: Exception


@dataclass(frozen=True, slots=True)
class Listed:
    """A listing is over: everything of the collection at this resourceVersion, or later, was told."""

    resource_version: str


Change = Added[T] | Modified[T] | Deleted[T] | Undecodable
Event = Change[T] | Listed
