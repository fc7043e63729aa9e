"""Namespaces and their labels: followed as far as the API server shows them to us, since queues select namespaces.

Where they are not shown, no queue that selects namespaces by labels admits any.
"""

import structlog

from extender.cluster.optional import Declared, Source
from extender.engine.types.events import Event, NamespaceGone, NamespaceSeen
from protos.contract import bounds, namespace
from protos.contract.namespace import API_VERSION, KIND, PLURAL, Namespace
from protos.kube.changes import Ref

log = structlog.get_logger(__name__)


def source() -> Source:
    """The kind."""
    return Source(API_VERSION, PLURAL, KIND, namespace.decode, _Declared())


class _Declared(Declared):
    """The namespaces that there are."""

    def seen(self, ref: Ref, found: Namespace) -> Event:
        if found.labels is None:
            most = bounds.NAMESPACE_LABELS.most
            log.warning("namespace_not_read", namespace=ref.name, expected=f"at most {most} labels")
        return NamespaceSeen(found)

    def gone(self, ref: Ref) -> Event:
        return NamespaceGone(ref.name)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        log.warning("namespace_not_read", namespace=ref.name, error=str(error))
