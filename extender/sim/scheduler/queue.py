"""The scheduling queue of kube-scheduler 1.34: active, backoff, error backoff, unschedulable, gated. Pure.

An unschedulable pod waits for an event that one of the plugins that refused it declares as helpful. For an extender
that is any event of pods or nodes. An update of a pod requeues only that pod. The backoff is 1, 2, 4 … seconds up to a
limit, in windows of one second. Unschedulable pods skip it while no pod is active.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from enum import StrEnum

from sortedcontainers import SortedKeyList

from extender.sim import podspec
from extender.sim.podspec import Object


class Event(StrEnum):
    """A cluster event that may requeue unschedulable pods."""

    POD_ADDED = "AssignedPodAdd"
    POD_UPDATED = "AssignedPodUpdate"
    POD_DELETED = "AssignedPodDelete"
    NODE_ADDED = "NodeAdd"
    NODE_ALLOCATABLE = "NodeAllocatableChange"
    NODE_LABELS = "NodeLabelChange"
    NODE_TAINTS = "NodeTaintChange"
    NODE_ANNOTATIONS = "NodeAnnotationChange"
    NODE_CONDITIONS = "NodeConditionChange"
    OWN_POD = "UnschedulablePodUpdate"
    OWN_TOLERATIONS = "PodTolerationChange"


EXTENDER = "Extender"
_HELPS: dict[str, frozenset[Event]] = {
    EXTENDER: frozenset(Event),
    "NodeResourcesFit": frozenset({Event.POD_DELETED, Event.NODE_ADDED, Event.NODE_ALLOCATABLE}),
    "NodeAffinity": frozenset({Event.NODE_ADDED, Event.NODE_LABELS}),
    "TaintToleration": frozenset({Event.NODE_ADDED, Event.NODE_TAINTS, Event.NODE_CONDITIONS, Event.OWN_TOLERATIONS}),
    "NodeUnschedulable": frozenset({Event.NODE_ADDED, Event.NODE_TAINTS, Event.OWN_TOLERATIONS}),
    "NodeName": frozenset({Event.NODE_ADDED}),
    "NodePorts": frozenset({Event.POD_DELETED, Event.NODE_ADDED}),
}


class Place(StrEnum):
    """The part of the queue that holds a pod."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "error backoff"
    REFUSED = "refused"
    GATED = "gated"
    IN_FLIGHT = "in flight"


class QueuedPod:
    """A queued pod with its scheduling history."""

    __slots__ = ("errors", "order", "place", "plugins", "pod", "refusals", "since")

    def __init__(self, pod: Object, now: float) -> None:
        self.pod = pod
        self.since = now  # time of the last enqueue
        self.refusals = 0
        self.errors = 0  # in a row
        self.plugins: frozenset[str] = frozenset()  # plugins of the last refusal
        self.place = Place.GATED
        self.order: tuple[float, ...] = ()  # in its line; no two are equal

    @property
    def priority(self) -> int:
        return int(self.pod["spec"].get("priority", 0))


class SchedulingQueue:
    """``initial`` and ``most`` are the backoff limits in seconds."""

    def __init__(self, initial: float = 1.0, most: float = 10.0) -> None:
        self._initial, self._most = initial, most
        self._pods: dict[str, QueuedPod] = {}
        self._lines = {
            place: SortedKeyList[QueuedPod](key=lambda entry: entry.order)
            for place in (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
        }
        self._events: dict[str, list[Event]] = {}  # of pods in flight, since their pop
        self._numbers = itertools.count()

    def add(self, pod: Object, now: float) -> None:
        """Add a new unbound pod."""
        entry = self._pods[podspec.uid(pod)] = QueuedPod(pod, now)
        if not pod["spec"].get("schedulingGates"):
            self._activate(entry)

    def update(self, pod: Object, now: float) -> None:
        """Update a pod, which may requeue this pod alone."""
        entry = self._pods.get(podspec.uid(pod))
        if entry is None:
            self.add(pod, now)
            return
        old, entry.pod = entry.pod, pod
        if entry.place is Place.GATED and not pod["spec"].get("schedulingGates"):
            entry.since = now
            self._activate(entry)
            return
        events = [Event.OWN_POD]
        if old["spec"].get("tolerations") != pod["spec"].get("tolerations"):
            events.append(Event.OWN_TOLERATIONS)
        if entry.place is Place.IN_FLIGHT:
            self._events.get(podspec.uid(pod), []).extend(events)
        elif entry.place is Place.REFUSED and self._helped(entry, events):
            self._requeue(entry, now)

    def delete(self, uid: str) -> None:
        entry = self._pods.pop(uid, None)
        if entry and entry.place in self._lines:
            self._lines[entry.place].remove(entry)
        self._events.pop(uid, None)

    def move(self, event: Event, now: float, up_to_priority: int | None = None) -> None:
        """Requeue the unschedulable pods that a cluster event may help."""
        for events in self._events.values():
            events.append(event)
        for entry in list(self._pods.values()):
            included = up_to_priority is None or entry.priority <= up_to_priority
            if included and entry.place is Place.REFUSED and self._helped(entry, (event,)):
                self._requeue(entry, now)

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to schedule, None if there is none."""
        self._flush(now)
        line = self._lines[Place.ACTIVE] or self._lines[Place.BACKOFF]
        if not line:
            return None
        entry: QueuedPod = line.pop(0)
        entry.place = Place.IN_FLIGHT
        self._events[podspec.uid(entry.pod)] = []
        return entry

    def next_expiry(self) -> float | None:
        """End of the next error backoff. Unschedulable pods skip their backoff while no pod is active."""
        line = self._lines[Place.ERROR_BACKOFF]
        return line[0].order[0] if line else None

    def refused(self, entry: QueuedPod, plugins: Iterable[str], now: float) -> None:
        """No node fits: wait for a helpful event, or back off if one came during the attempt."""
        if not self._known(entry):
            return
        entry.plugins, entry.since = frozenset(plugins), now
        entry.refusals, entry.errors = entry.refusals + 1, 0
        events = self._events.pop(podspec.uid(entry.pod), [])
        entry.place = Place.REFUSED
        if self._helped(entry, events):
            self._requeue(entry, now)

    def failed(self, entry: QueuedPod, now: float) -> None:
        """The attempt ended in an error: retry after the backoff."""
        if not self._known(entry):
            return
        self._events.pop(podspec.uid(entry.pod), None)
        entry.plugins, entry.since, entry.errors = frozenset(), now, entry.errors + 1
        self._push(Place.ERROR_BACKOFF, entry, self._expiry(entry, entry.errors))

    def done(self, entry: QueuedPod) -> None:
        """The pod is assumed or being deleted; it stays in the queue until ``delete``."""
        self._events.pop(podspec.uid(entry.pod), None)

    def _known(self, entry: QueuedPod) -> bool:
        return self._pods.get(podspec.uid(entry.pod)) is entry

    @staticmethod
    def _helped(entry: QueuedPod, events: Iterable[Event]) -> bool:
        return any(event in _HELPS.get(plugin, ()) for plugin in entry.plugins for event in events)

    def _requeue(self, entry: QueuedPod, now: float) -> None:
        expiry = self._expiry(entry, entry.refusals)
        if expiry > math.floor(now):
            self._push(Place.BACKOFF, entry, expiry)
        else:
            self._activate(entry)

    def _expiry(self, entry: QueuedPod, failures: int) -> float:
        wait = min(self._initial * 2.0 ** min(failures - 1, 30), self._most)
        return float(math.floor(entry.since + wait))

    def _activate(self, entry: QueuedPod) -> None:
        self._push(Place.ACTIVE, entry, -entry.priority, entry.since)

    def _push(self, place: Place, entry: QueuedPod, *order: float) -> None:
        entry.place, entry.order = place, (*order, next(self._numbers))
        self._lines[place].add(entry)

    def _flush(self, now: float) -> None:
        """Activate the pods whose backoff has expired."""
        for place in (Place.BACKOFF, Place.ERROR_BACKOFF):
            line = self._lines[place]
            while line and line[0].order[0] <= math.floor(now):
                self._activate(line.pop(0))
