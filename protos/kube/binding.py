"""The one write that places a pod: node and annotations arrive together (Binding subresource, core/v1)."""

from collections.abc import Mapping

from protos.kube import paths
from protos.kube.client import ApiClient


async def bind(
    client: ApiClient, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
) -> None:
    """Bind the pod with this UID to a node; the annotations are merged over the pod's in the same update.

    Raises Conflict if it is bound already, being deleted, gated or another pod by now; NotFound if there is none;
    Unavailable, whose `outcome_unknown` says whether it may be bound all the same.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": namespace, "name": name, "uid": uid, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await client.post(paths.pod(namespace, name, "binding"), body)
