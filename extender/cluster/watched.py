"""One kind of objects that is watched: where it is, how an object is read, and which events come of it."""

from collections.abc import Callable
from typing import Any

import msgspec

from extender.engine.types.events import Event
from protos.kube import paths
from protos.kube.changes import Ref


def _nothing() -> None:
    return None


class WatchedKind(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `extender.cluster.kinds`. Each function may return None: then the engine is told nothing."""

    api_version: str
    """Group and version, as in an object's apiVersion."""
    plural: str
    kind: str
    decode: Callable[[bytes], Any]
    """Reads an object; raises one of `codec.BAD_JSON` or ValueError."""
    seen: Callable[[Ref, Any], Event | None]
    """The object was added or changed."""
    gone: Callable[[Ref], Event | None]
    """The object was deleted."""
    listed: Callable[[], Event | None] = _nothing
    """All objects were told."""
    left: Callable[[], Event | None] = _nothing
    """The kind is not served any more; `gone` was called for each of its objects."""
    unreadable: Callable[[Ref, str], None] | None = None
    """Tells the owner why an object cannot be read. The log tells of it in any case."""
    namespace: str = ""
    """Only objects of this namespace are watched; "": all."""

    @property
    def title(self) -> str:
        """`Queue gangshare.io/v1alpha1`."""
        return f"{self.kind} {self.api_version}"

    @property
    def path(self) -> str:
        """Of the collection, on the API server."""
        return paths.path(self.api_version, self.plural, namespace=self.namespace)
