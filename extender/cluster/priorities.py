"""PriorityClasses: followed as far as the API server shows them to us, since PodGroups name them.

Where they are not shown, the priorities of its members are those of a group.
"""

import structlog

from extender.cluster.optional import Declared, Source
from extender.engine.types.events import Event, PriorityGone, PrioritySeen
from protos.contract import priority
from protos.contract.priority import API_VERSION, KIND, PLURAL, PriorityClass
from protos.kube.changes import Ref

log = structlog.get_logger(__name__)


def source() -> Source:
    """The kind."""
    return Source(API_VERSION, PLURAL, KIND, priority.decode, _Declared())


class _Declared(Declared):
    """The classes that there are."""

    def seen(self, _: Ref, found: PriorityClass) -> Event:
        return PrioritySeen(found)

    def gone(self, ref: Ref) -> Event:
        return PriorityGone(ref.name)

    def unreadable(self, ref: Ref, error: Exception) -> None:
        log.warning("priority_class_not_read", priority_class=ref.name, error=str(error))
