"""ET-operator's ScaleIns and ScaleOuts: followed where their definitions are, made, and taken away again."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from extender.cluster.feed import Kind
from extender.cluster.optional import Source
from extender.engine.effects import Event, Scale, ScalerGone, ScalerSeen, ScalersServed, Unscale
from protos.contract import training
from protos.contract.training import API_VERSION, PLURALS, Scaler, ScalerKind
from protos.kube import paths
from protos.kube.changes import Ref
from protos.kube.client import ApiClient

log = structlog.get_logger(__name__)


def sources() -> list[Source]:
    """Both kinds."""
    return [_source(kind) for kind in PLURALS]


def _source(kind: ScalerKind) -> Source:
    def decode(raw: bytes) -> Scaler:
        return training.decode_scaler(kind, raw)

    return Source(API_VERSION, PLURALS[kind], kind, decode, _Declared(kind))


class _Declared(Kind):
    """The scalers of one kind."""

    def __init__(self, kind: ScalerKind) -> None:
        self._kind: ScalerKind = kind
        self._known: set[tuple[str, str]] = set()

    def seen(self, ref: Ref, found: Scaler) -> Event:
        self._known.add((ref.namespace, ref.name))
        return ScalerSeen(found)

    def gone(self, ref: Ref) -> Event:
        self._known.discard((ref.namespace, ref.name))
        return ScalerGone(self._kind, ref.namespace, ref.name)

    def listed(self) -> Event:
        return ScalersServed(self._kind, yes=True)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        log.warning("scaler_not_read", kind=self._kind, object=f"{ref.namespace}/{ref.name}", error=str(error))

    def forgotten(self) -> Iterable[Event]:
        gone: list[Event] = [ScalerGone(self._kind, *key) for key in sorted(self._known)]
        self._known.clear()
        return [*gone, ScalersServed(self._kind, yes=False)]


async def write(client: ApiClient, said: Scale | Unscale) -> None:
    """Make or delete it; raises the request's errors."""
    scaler = said.scaler
    where = {"group_version": API_VERSION, "plural": PLURALS[scaler.kind], "namespace": scaler.namespace}
    if isinstance(said, Scale):
        await client.post(paths.path(**where), training.body(scaler))
    else:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": scaler.uid}}
        await client.delete(paths.path(**where, name=scaler.name), options)
