"""Reservations: GPUs held for a pending pod while the pods in its way are moved or evicted.

Annotations name the GPUs, and a restarted extender rebuilds the reservations from them. Free GPUs are booked at once,
the others in the step in which they become free, before any other pod can take them. The booking is HELD, ends at a
time, and is lent to its pod while kube-scheduler asks about that pod. The pod's queue must admit a reservation, and
counts it as the pod's usage.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from extender.engine.state.context import EngineContext
from extender.engine.state.intree import counted, lacking
from extender.engine.state.pod_state import PodState
from extender.engine.state.reservation import Promises, Reservation, assign, free_of
from extender.engine.state.seats import Assignment
from extender.engine.types import trust
from extender.engine.types.amounts import add
from extender.engine.types.effects import PodRef, Report
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.reservation import Room

AGAIN_MOST_S = 60.0
"""The longest time between two requeues of a pod that does not come; it doubles each time."""
PREFIX = "room-"
"""Prefix of the names in the books; the pod's UID follows."""


class Grants(Protocol):
    """What the queues decide about reservations of their pods (by UID)."""

    def promise(self, uid: str, yes: bool) -> None:
        """Count the reservation in the pod's queue, or not any more."""

    def admits(self, uid: str, *, making: bool) -> bool:
        """Whether the queue admits it; `making`: pods of the same queue may be evicted for it."""

    def queue(self, uid: str) -> object:
        """The pod's queue. The answer of another queue may differ."""

    def turns(self) -> tuple[int, int]:
        """Two counters, for refused and for admitted pods; an answer may have changed only if its counter has."""


class Reservations:
    """All reservations, by the UIDs of the pending pods."""

    def __init__(self, context: EngineContext, grants: Grants) -> None:
        settings = context.settings
        self._ledger, self._quarantine, self._grants = context.ledger, context.quarantine, grants
        self._outbox, self._enabled = context.outbox, settings.reservation_ttl_s > 0
        self._ignored = frozenset(settings.resources.managed)
        self.promises = Promises(settings.reservation_ttl_s, context.wall)
        self._of: dict[str, Reservation] = {}
        self._on: dict[str, dict[str, None]] = {}
        """UIDs of pods by the node of their reservations."""
        self._stale: dict[str, None] = {}
        """UIDs of reservations to review: they, their pods or their nodes have changed."""
        self._waiting: dict[str, None] = {}
        """UIDs of complete reservations whose pods have not come."""
        self._soonest = math.inf
        """No reservation ends before this time."""
        self._turns = self._ticked = (0, 0)
        """The current turns of the queues, and those at the last tick."""

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, uid: str) -> Reservation | None:
        """The reservation of this pod, None if it has none."""
        kept = self._of.get(uid)
        return kept if kept is not None and kept.room is not None else None

    def holds(self, keeper: PodState) -> bool:
        """Whether this keeper belongs to a reservation."""
        kept = self._of.get(keeper.ref.uid.removeprefix(PREFIX))
        return kept is not None and kept.keeper is keeper

    def preempting(self) -> Iterator[str]:
        """The pending pods (UIDs) for whose reservations victims are evicted."""
        return (uid for uid, kept in self._of.items() if kept.room and kept.preempting and not kept.pod.node)

    def claims(self, but: Collection[str]) -> list[tuple[PodState, Assignment]]:
        """The keepers and assignments of all reservations with a booking, but for these pods (UIDs)."""
        return [
            (kept.keeper, kept.assignment)
            for uid, kept in self._of.items()
            if kept.assignment is not None and kept.keeper.node and uid not in but
        ]

    def keepers(self, uids: Collection[str]) -> tuple[PodState, ...]:
        """The booked keepers of these pods (UIDs)."""
        return tuple(kept.keeper for uid in uids if (kept := self.of(uid)) is not None and kept.keeper.node)

    def see(self, pod: Pod, state: PodState, now: float) -> None:
        """Read a pod and its annotation; report an annotation that is malformed or not trusted."""
        uid, enabled = pod.metadata.uid, state.info.ours and self._enabled
        self.moved(uid)
        text = pod.metadata.annotations.get(names.RESERVATION) if enabled else None
        changed, why = self.promises.read(pod, text, trust.reserver(pod) if text is not None else "", now)
        self._reread(uid, now)
        for each in changed:
            self._reread(each, now)
        if why is not None and _is_pending(state):
            self._outbox.put(Report(state.ref, why))

    def read_anew(self, now: float) -> None:
        """The wall clock was set: the ends of the reservations have moved."""
        for each in self.promises.read_anew(now):
            self._reread(each, now)

    def forget(self, uid: str, now: float) -> None:
        """The pod has ended: drop its reservation and its annotation."""
        self._drop(uid)
        for each in self.promises.forget(uid):
            if each != uid:
                self._reread(each, now)

    def asks_anew(self, uid: str, now: float) -> None:
        """The pod's request has changed."""
        if uid in self._of:
            self._reread(uid, now)

    def _reread(self, uid: str, now: float) -> None:
        """Bring the pod's reservation in line with the annotations."""
        state, known = self._ledger.pods.get(uid), self._of.get(uid)
        promise = self.promises.of(uid, state.ref.namespace) if state is not None and _is_pending(state) else None
        if state is None or promise is None:
            self._drop(uid)
            return
        if known is None or known.asked != (promise.text, promise.preempting, state.ask, state.requests):
            self._drop(uid)
            room, keeper = promise.rooms[uid], PodState(PodRef(state.ref.namespace, state.ref.name, PREFIX + uid), now)
            keeper.asked, keeper.requests = state.asked, state.requests
            self._of[uid] = Reservation(state, state.ask, promise, room, keeper)
            self._on.setdefault(room.node, {})[uid] = None
        elif known.until != promise.until:
            known.promise, known.assignment, known.version = promise, None, -1  # the assignment has the end, too
        else:
            return
        self._stale[uid] = None
        self._soonest = min(self._soonest, promise.until)

    def _drop(self, uid: str) -> None:
        if uid in self._of:
            self.give_up(uid)
            del self._of[uid]

    def changed(self, node: str) -> None:
        self._stale |= self._on.get(node, {})

    def moved(self, uid: str) -> None:
        """The pod got or released GPUs, or changed its queue."""
        if uid in self._of:
            self._stale[uid] = None

    def lend(self, uid: str) -> None:
        """Free the reserved GPUs for the pod until the next review."""
        kept = self._of.get(uid)
        if kept is not None:
            self._stale[uid] = None
            self._free(kept)

    def give_up(self, uid: str) -> None:
        """End the reservation until the annotation or the pod's requests change."""
        kept = self._of[uid]
        if kept.room is not None:
            here = self._on[kept.room.node]
            del here[uid]
            if not here:
                del self._on[kept.room.node]
        kept.room = kept.assignment = None
        self._waiting.pop(uid, None)
        self._release(kept)

    def _free(self, kept: Reservation) -> None:
        kept.version = -1
        if kept.keeper.node:
            self._ledger.unbind(kept.keeper)
        self._ledger.keepers.pop(kept.keeper.ref.uid, None)

    # -- booking

    def keep(self, now: float, *, tick: bool = False) -> list[Reservation]:
        """Review reservations and book what is free of them; returns the reviewed ones with pending pods.

        Reviews those that have changed; on a `tick` also those whose queue may answer differently now, and complete
        ones whose pods have not come.
        """
        uids, self._stale = self._due(now, tick=tick), {}
        reviewed = [kept for uid in uids if (kept := self._of.get(uid)) is not None]
        self._turns = self._grants.turns()
        results = self._quarantine.tried(
            reviewed, lambda kept: kept.pod.subject, "reservations", lambda kept: self._review(kept, now)
        )
        pending = []
        for kept, waits in zip(reviewed, results, strict=True):
            self._waiting.pop(kept.pod.ref.uid, None)
            if waits:
                pending.append(kept)
                if kept.complete:
                    self._waiting[kept.pod.ref.uid] = None
        return pending

    def _due(self, now: float, *, tick: bool) -> Iterable[str]:
        if now >= self._soonest:
            self._soonest = min((kept.until for kept in self._of.values() if kept.room is not None), default=math.inf)
            return list(self._of)
        if not tick:
            return self._stale
        (refused, admitted), self._ticked = self._ticked, self._grants.turns()
        if admitted != self._ticked[True]:
            return list(self._of)
        again = [uid for uid, kept in self._of.items() if not kept.admitted] if refused != self._ticked[False] else ()
        return {**self._stale, **self._waiting, **dict.fromkeys(again)}

    def _review(self, kept: Reservation, now: float) -> bool:
        """Book what is free; returns whether the pod is pending and the reservation has not ended."""
        if kept.room is None:
            self._release(kept)  # if an error prevented it before
            return False
        if now >= kept.until:
            self.give_up(kept.pod.ref.uid)
        elif kept.pod.state == "waiting":
            before = kept.complete
            if self._admits(kept):
                self._book(kept, kept.room)
            if kept.complete and not before:
                kept.complete_at = now
            return True
        else:
            self._release(kept)
        return False

    def _admits(self, kept: Reservation) -> bool:
        """Whether the pod can be placed and its queue admits the reservation; if not, release the booking."""
        uid, pod = kept.pod.ref.uid, kept.pod
        queue = self._grants.queue(uid)
        if kept.turn != self._turns[kept.admitted] or kept.queue is not queue:
            kept.admitted, kept.queue = self._grants.admits(uid, making=kept.preempting), queue
            self._turns = self._grants.turns()
            kept.turn = self._turns[kept.admitted]
        admitted = kept.admitted and not pod.forged and not isinstance(pod.asked, Reason)
        if not admitted:
            kept.assignment = None
            self._release(kept)
        return admitted

    def _release(self, kept: Reservation) -> None:
        kept.complete = False
        self._promise(kept, yes=False)
        self._free(kept)

    def _promise(self, kept: Reservation, *, yes: bool) -> None:
        if kept.promised is not yes:
            self._grants.promise(kept.pod.ref.uid, yes)
            kept.promised = yes

    def _book(self, kept: Reservation, room: Room) -> None:
        node = self._ledger.nodes.get(room.node)
        if node is not None and node.version == kept.version:
            return
        if node is None or not node.seen or node.problem:
            kept.assignment = None
        else:
            assign(kept, room, node)
        if node is None or kept.assignment is None:
            self._release(kept)
            return
        self._promise(kept, yes=True)
        charges = free_of(kept.assignment.charges, node.books, kept.keeper.ref.uid)
        if not kept.keeper.node or charges != self._ledger.charges(kept.keeper):
            self._ledger.keepers[kept.keeper.ref.uid] = kept.keeper
            self._ledger.hold(kept.keeper, node.name, charges)
        used_by_others = dict(node.used)
        add(used_by_others, kept.keeper.requests, -1)
        short = lacking(counted(kept.keeper.requests, self._ignored), node.allocatable, used_by_others)
        kept.complete = charges == kept.assignment.charges and not short
        kept.version = node.version

    def due(self, uid: str, now: float) -> bool:
        """Whether to requeue a pod with a complete reservation now."""
        kept = self._of[uid]
        if now < kept.again_at:
            return False
        kept.again_at, kept.again_s = now + kept.again_s, min(AGAIN_MOST_S, 2 * kept.again_s)
        return True


def _is_pending(pod: PodState) -> bool:
    """Whether the pod is ours and, as the watch shows it, on no node."""
    return pod.info.ours and not pod.info.on_node
