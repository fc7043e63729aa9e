"""Effects that wait to be carried out: the latest of equal ones, and of too many not the oldest."""

import asyncio

import msgspec

from extender.engine.types.effects import (
    ClassStatus,
    Evict,
    Fault,
    GroupStatus,
    QueueStatus,
    Report,
    ReportOwner,
    Requeue,
    Scale,
    SetAnnotation,
    Unscale,
)
from protos.contract.reason import Reason
from protos.kube.events import Reference


class Complaint(msgspec.Struct, frozen=True):
    """Tell the owner of any object by an Event what is wrong with it."""

    about: Reference
    reason: Reason


Told = Report | ReportOwner | Complaint | Fault
"""What people read, and nothing waits for."""
Status = GroupStatus | ClassStatus | QueueStatus
Write = Requeue | SetAnnotation | Evict | Scale | Unscale | Status | Told
"""Effects that are writes to the API server."""
Key = tuple[str, ...]
"""Equal for effects of which only the latest is carried out."""


class Pending:
    """Effects in the order in which they came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[Key, Write] = {}
        self._some = asyncio.Semaphore(0)
        self.in_flight = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    def put(self, key: Key, effect: Write) -> Write | None:
        """Returns the effect that is given up for it, None if there is room for both."""
        dropped = None
        if key not in self._of:
            if len(self._of) >= self._most:
                dropped = self._of.pop(next(iter(self._of)))
            else:
                self._some.release()
        self._of[key] = effect
        return dropped

    async def next(self) -> tuple[Key, Write]:
        await self._some.acquire()
        key = next(iter(self._of))
        return key, self._of.pop(key)


def identity(effect: Write) -> tuple[Key, str]:
    """Its key, and the name of what it is about."""
    match effect:
        case Requeue(pod):
            return ("wake", pod.uid), str(pod)
        case SetAnnotation(pod, key):
            return ("put back", pod.uid, key), str(pod)
        case Report(pod, reason):
            return ("report", pod.uid, reason.code), str(pod)
        case Evict(pod):
            return ("evict", pod.uid), str(pod)
        case Scale(scaler) | Unscale(scaler):
            about = f"{scaler.namespace}/{scaler.name}"
            return (type(effect).__name__, scaler.kind, scaler.namespace, scaler.name), about
        case Complaint(owner, reason):
            return ("complaint", owner.uid, reason.code), f"{owner.namespace}/{owner.name}"
        case ReportOwner(namespace, controller, reason):
            return ("report owner", controller.uid, reason.code), f"{namespace}/{controller.name}"
        case Fault(subject, name):
            return ("fault", *subject), name
        case GroupStatus():
            return ("group status", effect.key.namespace, effect.key.name), str(effect.key)
        case ClassStatus():
            return ("class status", effect.name), effect.name
        case QueueStatus():
            return ("queue status", effect.name), effect.name
