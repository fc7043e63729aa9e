"""Reservations: room that is kept for a pod that waits, while the pods that stand in its way are being moved.

Annotations name the GPUs. What is free of them is booked at once, and the rest as it becomes free, in the very step
in which that is seen, so that nobody else gets in between. The booking is HELD, has an end, and is the pod's own: while
kube-scheduler asks about that pod it is lent to it. They are rebuilt from the annotations by whoever starts anew.
Nothing is kept past what the pod's queue admits: what is kept is promised to the pod there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from extender.engine.state.intree import counted, lacking
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.promises import Promises
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.reservation import Reservation, free_of, gpus, spot, without
from extender.engine.state.seats import Assignment
from extender.engine.types import trust
from extender.engine.types.effects import PodRef, Report
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.reservation import Room

AGAIN_MOST_S = 60.0
"""Seconds after which a pod that does not come is woken again, at most: they are doubled each time."""
PREFIX = "room-"
"""How the names begin under which it is booked; a UID follows."""


class Grants(Protocol):
    """What queues say of room that is kept for their pods (by UID)."""

    def promise(self, uid: str, yes: bool) -> None:
        """The room counts as the pod's in its queue, or not any more."""

    def admits(self, uid: str, *, making: bool) -> bool:
        """Whether the queue may have that much more; `making`: others of it may be leaving for the pod."""

    def queue(self, uid: str) -> object:
        """The pod's queue. In another one the answer may be another one."""

    def turns(self) -> tuple[int, int]:
        """Of those that were refused, and of those that were admitted: another one when an answer may have changed."""
        ...


class Reservations:
    """All of them, by the UIDs of the pods that wait."""

    def __init__(self, ledger: Ledger, quarantine: Quarantine, settings: Settings, grants: Grants, wall: Wall) -> None:
        self._ledger, self._quarantine, self._grants = ledger, quarantine, grants
        self._enabled = settings.reservation_ttl_s > 0
        self._ignored = frozenset(settings.resources.all)
        self.promises = Promises(settings.reservation_ttl_s, wall)
        self._of: dict[str, Reservation] = {}
        self._on: dict[str, dict[str, None]] = {}
        """Whose room is on a node, by its name."""
        self._stale: dict[str, None] = {}
        """Whose room is to be looked at: something happened to it, to its pod or to its node."""
        self._waiting: dict[str, None] = {}
        """Whose room is complete while the pod has not come."""
        self._soonest = math.inf
        """No room is given up for its time's sake before."""
        self._turns = self._ticked = (0, 0)
        """What the queues' turns are, and what they were at the last tick."""

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, uid: str) -> Reservation | None:
        """What is kept for this pod, None if nothing is."""
        kept = self._of.get(uid)
        return kept if kept is not None and kept.room is not None else None

    def holds(self, keeper: PodState) -> bool:
        """Whether this holds the room of a pod in the books."""
        kept = self._of.get(keeper.ref.uid.removeprefix(PREFIX))
        return kept is not None and kept.keeper is keeper

    def preempting(self) -> Iterator[str]:
        """The pods (UIDs) that wait for room for which others are evicted."""
        return (uid for uid, kept in self._of.items() if kept.room and kept.preempting and not kept.pod.node)

    def claims(self, but: Collection[str]) -> list[tuple[PodState, Assignment]]:
        """What is kept for pods other than these (UIDs): what holds it in the books, and all of it."""
        return [
            (kept.keeper, kept.assignment)
            for uid, kept in self._of.items()
            if kept.assignment is not None and kept.keeper.node and uid not in but
        ]

    def keepers(self, uids: Collection[str]) -> tuple[PodState, ...]:
        """What holds the room of these pods in the books."""
        return tuple(kept.keeper for uid in uids if (kept := self.of(uid)) is not None and kept.keeper.node)

    def see(self, pod: Pod, state: PodState, now: float) -> list[Report]:
        """Take in a pod and what its annotation says; tells its owner if that cannot be read, or is not believed."""
        uid, believed = pod.metadata.uid, state.info.ours and self._enabled
        self.moved(uid)
        text = pod.metadata.annotations.get(names.RESERVATION) if believed else None
        news, why = self.promises.read(pod, text, trust.reserver(pod) if text is not None else "", now)
        self._reread(uid, now)
        for each in news:
            self._reread(each, now)
        return [Report(state.ref, why)] if why is not None and _is_pending(state) else []

    def read_anew(self, now: float) -> None:
        """The wall clock was set: what is written says another moment now."""
        for each in self.promises.read_anew(now):
            self._reread(each, now)

    def forget(self, uid: str, now: float) -> None:
        """The pod is over: nothing is kept for it any more, nor by its word."""
        self._drop(uid)
        for each in self.promises.forget(uid):
            if each != uid:
                self._reread(each, now)

    def _reread(self, uid: str, now: float) -> None:
        """Keep what is asked for a pod by now."""
        state, known = self._ledger.pods.get(uid), self._of.get(uid)
        found = self.promises.of(uid, state.ref.namespace) if state is not None and _is_pending(state) else None
        if state is None or found is None:
            self._drop(uid)
        elif known is None or known.asked != (found.text, found.preempting, state.ask, state.requests):
            self._drop(uid)
            room, keeper = found.rooms[uid], PodState(PodRef(state.ref.namespace, state.ref.name, PREFIX + uid), now)
            keeper.asked, keeper.requests = state.asked, state.requests
            self._of[uid] = Reservation(state, state.ask, found.text, room, found.preempting, found.until, keeper)
            self._on.setdefault(room.node, {})[uid] = None
            self._stale[uid] = None
            self._soonest = min(self._soonest, found.until)
        elif known.until != found.until:
            known.until, known.assignment, known.version = found.until, None, -1  # its place says when it ends, too
            self._stale[uid] = None
            self._soonest = min(self._soonest, found.until)

    def _drop(self, uid: str) -> None:
        kept = self._of.get(uid)
        if kept is not None:
            self._off(kept)
            del self._of[uid]

    def _off(self, kept: Reservation) -> None:
        """Nothing is kept for the pod any more."""
        uid, room = kept.pod.ref.uid, kept.room
        if room is not None:
            del self._on[room.node][uid]
            if not self._on[room.node]:
                del self._on[room.node]
        kept.room = kept.assignment = None
        self._waiting.pop(uid, None)
        self._release(kept)

    def changed(self, node: str) -> None:
        """Something happened to this node."""
        self._stale |= self._on.get(node, {})

    def moved(self, uid: str) -> None:
        """Something happened to this pod: it got GPUs, or gave them up, or is in another queue."""
        if uid in self._of:
            self._stale[uid] = None

    def lend(self, uid: str) -> None:
        """What is kept for the pod is there for it, until the next look."""
        kept = self._of.get(uid)
        if kept is not None:
            self._stale[uid] = None
            self._free(kept)

    def give_up(self, uid: str) -> None:
        """Nothing is kept for the pod any more, until it asks for something else."""
        self._off(self._of[uid])

    def _free(self, kept: Reservation) -> None:
        kept.version = -1
        if kept.keeper.node:
            self._ledger.unbind(kept.keeper)
        self._ledger.keepers.pop(kept.keeper.ref.uid, None)

    # -- booking

    def keep(self, now: float, *, tick: bool = False) -> list[Reservation]:
        """Book what is free of all that is to be kept; returns those whose pods wait, as far as they were looked at.

        Looked at is where something happened; on a `tick` also those whose queue may answer otherwise by now, and
        those whose pods only have to come.
        """
        looked_at, self._stale = self._due(now, tick=tick), {}
        known = [kept for uid in looked_at if (kept := self._of.get(uid)) is not None]
        self._turns = self._grants.turns()
        waits = self._quarantine.tried(
            known, lambda kept: kept.pod.subject, "reservations", lambda kept: self._waits(kept, now)
        )
        found = []
        for kept, yes in zip(known, waits, strict=True):
            self._waiting.pop(kept.pod.ref.uid, None)
            if yes:
                found.append(kept)
                if kept.complete:
                    self._waiting[kept.pod.ref.uid] = None
        return found

    def _due(self, now: float, *, tick: bool) -> Iterable[str]:
        """The pods (UIDs) whose rooms are to be looked at."""
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

    def _waits(self, kept: Reservation, now: float) -> bool:
        """Keep what is there for it; whether its pod waits and has not used up its time."""
        if kept.room is None:
            self._release(kept)  # an error may have come in between
            return False
        if now >= kept.until:
            self.give_up(kept.pod.ref.uid)
        elif kept.pod.state == "waiting":
            before = kept.complete
            if self._admits(kept):
                self._look(kept, kept.room)
            if kept.complete and not before:
                kept.complete_at = now
            return True
        else:
            self._release(kept)
        return False

    def _admits(self, kept: Reservation) -> bool:
        """Whether the pod may come, and its queue may have the room; if not, nothing is kept until it may."""
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
        """Nothing is kept for now, nor promised."""
        kept.complete = False
        self._promise(kept, yes=False)
        self._free(kept)

    def _promise(self, kept: Reservation, *, yes: bool) -> None:
        if kept.promised is not yes:
            self._grants.promise(kept.pod.ref.uid, yes)
            kept.promised = yes

    def _look(self, kept: Reservation, room: Room) -> None:
        node = self._ledger.nodes.get(room.node)
        if node is not None and node.version == kept.version:
            return
        if node is None or not node.seen or node.problem:
            kept.assignment = None
        elif kept.assignment is None or kept.made_of is not gpus(node):
            kept.assignment, kept.made_of = spot(kept, room, node), gpus(node)
        if node is None or kept.assignment is None:
            self._release(kept)
            return
        self._promise(kept, yes=True)
        charges = free_of(kept.assignment.charges, node.books, kept.keeper.ref.uid)
        if not kept.keeper.node or charges != self._ledger.charges(kept.keeper):
            self._ledger.keepers[kept.keeper.ref.uid] = kept.keeper
            self._ledger.hold(kept.keeper, node.name, charges)
        short = lacking(counted(kept.keeper.requests, self._ignored), node.allocatable, without(node, kept.keeper))
        kept.complete = charges == kept.assignment.charges and not short
        kept.version = node.version

    def due(self, uid: str, now: float) -> bool:
        """Whether a pod whose room is complete is to be woken now."""
        kept = self._of[uid]
        if now < kept.again_at:
            return False
        kept.again_at, kept.again_s = now + kept.again_s, min(AGAIN_MOST_S, 2 * kept.again_s)
        return True


def _is_pending(pod: PodState) -> bool:
    """Whether it is ours and, as the watch shows it, on no node."""
    return pod.info.ours and not pod.info.on_node
