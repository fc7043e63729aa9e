"""ET-operator's ScaleIns and ScaleOuts, made and deleted: they ask it to resize a TrainingJob."""

from __future__ import annotations

from extender.engine.types.effects import Scale, Unscale
from protos.contract import training
from protos.contract.training import API_VERSION, PLURALS
from protos.kube import paths
from protos.kube.client import ApiClient


async def write(client: ApiClient, said: Scale | Unscale) -> None:
    """Make or delete it; raises the request's errors."""
    scaler = said.scaler
    where = {"group_version": API_VERSION, "plural": PLURALS[scaler.kind], "namespace": scaler.namespace}
    if isinstance(said, Scale):
        await client.post(paths.path(**where), training.body(scaler))
    else:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": scaler.uid}}
        await client.delete(paths.path(**where, name=scaler.name), options)
