"""The one write that places a pod: node and annotations arrive together (Binding subresource, core/v1).

It goes as protobuf, as kube-scheduler's own do: kube-apiserver parses JSON twice, which costs it a tenth of the time
that a Binding takes.
"""

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from protos.kube import paths
from protos.kube.binding_pb2 import Binding, ObjectMeta, ObjectReference, TypeMeta, Unknown
from protos.kube.client import PROTOBUF, ApiClient

MAGIC = b"k8s\0"
"""How protobuf begins. Source: apimachinery runtime/serializer/protobuf."""
_TYPE = TypeMeta(api_version="v1", kind="Binding")


async def bind(
    client: ApiClient, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
) -> None:
    """Bind the pod with this UID to a node; the annotations are merged over the pod's in the same update.

    Raises Conflict if it is bound already, being deleted, gated or another pod by now; NotFound if there is none;
    Unavailable, whose `outcome_unknown` says whether it may be bound all the same.
    """
    metadata = ObjectMeta(namespace=namespace, name=name, uid=uid, annotations=annotations)
    made = Binding(metadata=metadata, target=ObjectReference(api_version="v1", kind="Node", name=node))
    body = MAGIC + Unknown(type_meta=_TYPE, raw=made.SerializeToString()).SerializeToString()
    await client.post(paths.pod(namespace, name, "binding"), body, content_type=PROTOBUF)


def parsed(body: bytes) -> Binding:
    """What `bind` wrote, for a stand-in of the API server; raises ValueError for anything else."""
    if not body.startswith(MAGIC):
        raise ValueError(f"expected {MAGIC!r} before protobuf, got {body[: len(MAGIC)]!r}")
    try:
        whole = Unknown.FromString(body.removeprefix(MAGIC))
        if whole.type_meta != _TYPE:
            raise ValueError(f"expected a v1 Binding, got {whole.type_meta.api_version} {whole.type_meta.kind}")
        return Binding.FromString(whole.raw)
    except DecodeError as error:
        raise ValueError(f"expected protobuf: {error}") from error
