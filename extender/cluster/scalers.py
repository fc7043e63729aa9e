"""ET-operator's ScaleIns and ScaleOuts: followed where their definitions are, made, and taken away again."""

from __future__ import annotations

import structlog

from extender.cluster.optional import Declared, Source
from extender.engine.types.effects import Scale, Unscale
from extender.engine.types.events import Event, ScalerGone, ScalerSeen, ScalersServed
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


class _Declared(Declared):
    """The scalers of one kind."""

    def __init__(self, kind: ScalerKind) -> None:
        self._kind: ScalerKind = kind

    def seen(self, _: Ref, found: Scaler) -> Event:
        return ScalerSeen(found)

    def gone(self, ref: Ref) -> Event:
        return ScalerGone(self._kind, ref.namespace, ref.name)

    def listed(self) -> Event:
        return ScalersServed(self._kind, yes=True)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        log.warning("scaler_not_read", kind=self._kind, object=f"{ref.namespace}/{ref.name}", error=str(error))

    def left(self) -> Event:
        return ScalersServed(self._kind, yes=False)


async def write(client: ApiClient, said: Scale | Unscale) -> None:
    """Make or delete it; raises the request's errors."""
    scaler = said.scaler
    where = {"group_version": API_VERSION, "plural": PLURALS[scaler.kind], "namespace": scaler.namespace}
    if isinstance(said, Scale):
        await client.post(paths.path(**where), training.body(scaler))
    else:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": scaler.uid}}
        await client.delete(paths.path(**where, name=scaler.name), options)
