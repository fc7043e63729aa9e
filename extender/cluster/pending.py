"""Effects that wait to be carried out. A newer effect replaces an equal one; beyond the limit the oldest is dropped."""

import asyncio

import msgspec

from extender.engine.types.effects import (
    ClassStatus,
    Evict,
    Fault,
    GroupStatus,
    QueueStatus,
    RemoveNomination,
    Report,
    ReportNode,
    ReportOwner,
    Requeue,
    Scale,
    SetAnnotation,
    Unscale,
)
from protos.contract.reason import Reason
from protos.kube.events import Reference


class Complaint(msgspec.Struct, frozen=True):
    """Report to the owner of an object by an Event what is wrong with it."""

    about: Reference
    reason: Reason


Notice = Report | ReportOwner | ReportNode | Complaint | Fault
"""Effects that only inform people."""
Status = GroupStatus | ClassStatus | QueueStatus
Write = Requeue | RemoveNomination | SetAnnotation | Evict | Scale | Unscale | Status | Notice
"""Effects that are writes to the API server."""
Key = tuple[str, ...]
"""The same for effects of which only the latest is carried out."""


class Pending:
    """Effects in the order in which their keys came."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._effects: dict[Key, Write] = {}
        self._count = asyncio.Semaphore(0)
        self.in_flight = 0

    def put(self, key: Key, effect: Write) -> Write | None:
        """Queue an effect; returns the effect that is dropped for it, if any."""
        dropped = None
        if key not in self._effects:
            if len(self._effects) >= self._most:
                dropped = self._effects.pop(next(iter(self._effects)))
            else:
                self._count.release()
        self._effects[key] = effect
        return dropped

    async def next(self) -> tuple[Key, Write]:
        await self._count.acquire()
        key = next(iter(self._effects))
        return key, self._effects.pop(key)


def identity(effect: Write) -> tuple[Key, str]:
    """The key of an effect, and the name of the object that it is about."""
    match effect:
        case Requeue(pod) | RemoveNomination(pod):  # both write the nomination: the latest one counts
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
        case ReportNode(node, reason):
            return ("report node", node, reason.code), node
        case Fault(subject, name):
            return ("fault", *subject), name
        case GroupStatus():
            return ("group status", effect.key.namespace, effect.key.name), str(effect.key)
        case ClassStatus():
            return ("class status", effect.name), effect.name
        case QueueStatus():
            return ("queue status", effect.name), effect.name
