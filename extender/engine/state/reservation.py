"""Reservations for pending pods: the annotations that ask for them, and the state of each.

One annotation may name reservations for several pods of its namespace, and several annotations may name the same pod: a
reservation is asked for as long as one of them exists. Only annotations of trusted writers count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from extender.engine.types.wall import Wall
from protos.contract import bounds, codec, names, reservation
from protos.contract.allocation import Share
from protos.contract.ask import NOTHING, Demand, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.reservation import Room

CANNOT = f"the reservation of {names.RESERVATION} cannot be made"
FORGED = "only the extender and `gangshare defrag --apply` may write it, through pods/status"
AGAIN_S = 5.0
"""Seconds until a pod with a complete reservation is requeued again."""


class Promise(msgspec.Struct, frozen=True, eq=False):
    """One annotation and its content."""

    namespace: str
    text: str
    by: str
    """The trusted manager that wrote it, "" if there is none."""
    latest: float
    """The latest end that we allow, whatever the annotation says."""
    content: reservation.Reservation | None
    """None: not trusted, unreadable or over."""
    until: float

    @property
    def preempting(self) -> bool:
        return self.content is not None and bool(self.content.preempting) and self.by == names.EXTENDER

    @property
    def rooms(self) -> dict[str, Room]:
        return self.content.rooms if self.content is not None else {}


class Promises:
    """All annotations, by the UIDs of the pods that carry them."""

    def __init__(self, most_s: float, wall: Wall) -> None:
        """No reservation lasts longer than `most_s`."""
        self._most_s, self._wall = most_s, wall
        self._on: dict[str, Promise] = {}
        self._for: dict[str, dict[str, None]] = {}
        """By the UID of a pod: the pods with an annotation for it."""
        self._rooms = 0
        """Reservations in all annotations."""
        self._allowed: dict[str, float] = {}
        """The latest ends of annotations that this process wrote."""

    def allow(self, uid: str, until: float) -> None:
        """The annotation of this pod may last until then."""
        self._allowed[uid] = until

    def on(self, uid: str) -> str:
        """The annotation of this pod, "" if it has none."""
        promise = self._on.get(uid)
        return promise.text if promise is not None else ""

    def of(self, uid: str, namespace: str) -> Promise | None:
        """An annotation with a reservation for this pod."""
        promises = (self._on[by] for by in self._for.get(uid, ()))
        return next((promise for promise in promises if promise.namespace == namespace), None)

    def read(self, pod: Pod, text: str | None, by: str, now: float) -> tuple[Collection[str], Reason | None]:
        """Read a pod's annotation, written by this manager.

        Returns the pods (UIDs) whose reservations may change, and why the annotation cannot be used.
        """
        uid = pod.metadata.uid
        known = self._on.get(uid)
        if (text, by) == ((known.text, known.by) if known is not None else (None, by)):
            return (), None
        former = self._remove(uid)
        if text is None:
            return former, None
        latest = max(now + self._most_s, self._allowed.get(uid, 0.0))
        rooms, why = self._put(uid, pod.metadata.namespace, text, by, latest, now)
        return {**former, **rooms}, why

    def read_anew(self, now: float) -> Collection[str]:
        """Read all again after the wall clock was set; returns the pods (UIDs) whose reservations may change.

        An annotation that this process wrote keeps its end on the monotonic clock.
        """
        changed: dict[str, Room] = {}
        for uid, known in list(self._on.items()):
            if known.by != names.EXTENDER or uid not in self._allowed:
                changed |= self._remove(uid)
                changed |= self._put(uid, known.namespace, known.text, known.by, known.latest, now)[0]
        return changed

    def _put(
        self, uid: str, namespace: str, text: str, by: str, latest: float, now: float
    ) -> tuple[dict[str, Room], Reason | None]:
        content, why = self._decode(text, by)
        until = min(self._wall.moment(content.until), latest) if content is not None else now
        made = self._on[uid] = Promise(namespace, text, by, latest, content if until > now else None, until)
        self._rooms += len(made.rooms)
        for each in made.rooms:
            self._for.setdefault(each, {})[uid] = None
        return made.rooms, why

    def _decode(self, text: str, by: str) -> tuple[reservation.Reservation | None, Reason | None]:
        if not by:
            return None, Reason("ReservationForged", CANNOT, FORGED)
        try:
            content = reservation.decode(text)
        except codec.ContractError as error:
            return None, Reason("ReservationMalformed", CANNOT, str(error))
        rooms = self._rooms + (len(content.rooms) if content is not None else 0)
        if rooms > bounds.ROOMS_IN_SUM.most:
            return None, Reason("ReservationMalformed", CANNOT, bounds.ROOMS_IN_SUM.exceeded(rooms))
        return content, None

    def forget(self, uid: str) -> Collection[str]:
        """The pod has ended; returns the pods (UIDs) whose reservations may change."""
        self._allowed.pop(uid, None)
        return self._remove(uid)

    def _remove(self, uid: str) -> dict[str, Room]:
        promise = self._on.pop(uid, None)
        rooms = promise.rooms if promise is not None else {}
        self._rooms -= len(rooms)
        for each in rooms:
            del self._for[each][uid]
            if not self._for[each]:
                del self._for[each]
        return rooms


class Reservation(msgspec.Struct, eq=False):
    """A reservation, and how much of it is booked."""

    pod: PodState
    ask: PodAsk | None
    promise: Promise
    """The annotation that asks for it."""
    room: Room | None
    """None: the reservation is over."""
    keeper: PodState
    """Stands for the pod in the books."""
    assignment: Assignment | None = None
    """What is to be booked; None while the node cannot have it."""
    made_of: Mapping[str, GpuBook] | None = None
    """The node's GPUs from which the assignment was made."""
    version: int = -1
    """The node's version at the last booking."""
    admitted: bool = False
    """The queue admits it."""
    queue: object = None
    turn: int = -1
    """The queue and its turn when `admitted` was asked."""
    promised: bool = False
    """It counts in its queue."""
    complete: bool = False
    complete_at: float = 0.0
    """When it last became complete."""
    again_at: float = 0.0
    again_s: float = AGAIN_S

    @property
    def until(self) -> float:
        return self.promise.until

    @property
    def preempting(self) -> bool:
        return self.promise.preempting

    @property
    def asked(self) -> tuple[object, ...]:
        return self.promise.text, self.preempting, self.ask, self.keeper.requests


def assign(kept: Reservation, room: Room, node: NodeState) -> None:
    """Set the assignment, unless it was made of the node's present GPUs."""
    gpus = node.books.gpus if node.books is not None else None
    if kept.assignment is None or kept.made_of is not gpus:
        kept.assignment, kept.made_of = _assignment(kept, room, node), gpus


def _assignment(kept: Reservation, room: Room, node: NodeState) -> Assignment | None:
    """None if the node lacks the GPUs or the pod's requests differ from them."""
    if kept.ask is None or node.books is None:
        return Assignment(node.name, until=kept.until) if kept.ask is None else None
    shares = _shares(kept.ask, node.books, room.containers)
    charges = node.books.charges(kept.ask, shares) if shares is not None else None
    return Assignment(node.name, charges, shares, kept.until) if shares is not None and charges is not None else None


def _shares(
    ask: PodAsk, books: NodeBooks, containers: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[Share, ...]] | None:
    eligible = {book.gpu.uuid: book for book in books.eligible(ask.selection)}
    by_container: dict[str, tuple[Share, ...]] = {}
    for container in ask.containers:
        uuids = containers.get(container.name, ())
        demands = [(eligible[uuid], books.demand(container, eligible[uuid].gpu)) for uuid in uuids if uuid in eligible]
        shares = [Share(b.gpu.uuid, b.gpu.index, d.mem, d.slices, d.whole) for b, d in demands if d is not None]
        if len(shares) != container.gpus or len(uuids) != container.gpus:
            return None
        by_container[container.name] = tuple(shares)
    return by_container


def free_of(charges: Mapping[str, Demand], books: NodeBooks | None, own: str) -> dict[str, Demand]:
    """The part of the charges that is free, with the own booking counted as free."""
    if books is None:
        return {}
    entry = books.entries.get(own)
    if entry is not None:
        books.release(own)
    free = {uuid: _part(demand, books.gpus.get(uuid)) for uuid, demand in charges.items()}
    if entry is not None:
        books.restore(own, entry)
    return {uuid: part for uuid, part in free.items() if part != NOTHING}


def _part(demand: Demand, book: GpuBook | None) -> Demand:
    if book is None or book.wholes or not book.offered:
        return NOTHING
    if book.fits(demand):
        return demand
    return Demand(min(demand.mem, book.mem_free), min(demand.slices, book.slices_free), False)
