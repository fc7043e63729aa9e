"""Slots: the rooms of lost members, which a gang that waits for others in their place keeps from everybody else, and

rooms found for members that were asked for beyond those that there are.

A slot is what the member held on its node, to the very GPU. It is a soft charge with an end, booked under a name of its
own, since the member is no pod any more. A gang keeps no more of them than it is short of members.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from extender.engine.books.ledger import Ledger, PodState
from extender.engine.effects import PodRef
from extender.engine.gangs.roster import Known, Slot
from extender.engine.gangs.starts import Starts
from extender.engine.planning.seats import Spot, stands
from gangfilter.gang import Gang, Patience
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from gangfilter.table import Phase
from protos.contract.ask import PodAsk

KEEPING = (Phase.BINDING, Phase.RUNNING, Phase.DEGRADED)
"""Phases in which a lost member is waited for."""
CLOCKS_S = 1.0
"""The API's clock shows whole seconds."""


class Slots:
    """All that is kept, for all gangs."""

    def __init__(self, ledger: Ledger, starts: Starts, patience: Patience) -> None:
        self._ledger, self._starts, self._patience = ledger, starts, patience
        self._of: dict[str, Known] = {}
        self._grown = 0
        """Counts the places kept for one more."""

    def of(self, uid: str) -> Known | None:
        """The gang for which something is kept under this name in the books, None if nothing is."""
        return self._of.get(uid)

    def keep(self, known: Known, member: Member, pod: PodState, now: float) -> None:
        """The member, which was bound and is lost, leaves its room, if its gang is short of one and waits for it."""
        node = self._ledger.nodes.get(pod.node)
        if pod.state != "bound" or node is None or member.yields or not self._patience.slot_s:
            return
        if not _waits(known.gang) or not known.gang.needs(member.role, member.required, _beside(known)):
            return
        entry = node.books.entries.get(pod.ref.uid) if node.books is not None else None
        if pod.unusable or (entry is not None and not entry.placed):
            return  # nobody says on which GPUs it was
        given = pod.allocation.containers if entry is not None and pod.allocation is not None else {}
        spot = Spot(node.name, entry.charges if entry else {}, given, now + self._patience.slot_s)
        self._ledger.unbind(pod)
        keeper = self._keeper(known, pod, pod.ref.name, pod.ref.uid, spot, now)
        known.slots.append(Slot(keeper, member.role, member.required, spot))
        self.check(keeper.ref.uid)

    def grow(self, known: Known, model: PodState, role: str, spots: Iterable[Spot], now: float) -> None:
        """These places are kept for members to come that ask what `model` does."""
        name = known.gang.key.name
        for spot in spots:
            self._grown += 1
            keeper = self._keeper(known, model, name, f"{known.gang.key}-{self._grown}", spot, now)
            known.slots.append(Slot(keeper, role, required=False, spot=spot, grown=True))

    def growing(self) -> list[GroupKey]:
        """The gangs for which places are kept for one more."""
        kept = {known.gang.key: known for known in self._of.values()}
        return [key for key, known in kept.items() if any(slot.grown for slot in known.slots)]

    def _keeper(self, known: Known, like: PodState, name: str, uid: str, spot: Spot, now: float) -> PodState:
        """What holds the place in the books."""
        keeper = PodState(PodRef(like.ref.namespace, name, f"slot-{uid}"), now)
        keeper.asked, keeper.requests = like.asked, like.requests
        self._ledger.slots[keeper.ref.uid] = keeper
        self._ledger.hold(keeper, spot.node, spot.charges)
        self._of[keeper.ref.uid] = known
        known.offering = True
        return keeper

    def trim(self, known: Known, now: float) -> None:
        """Give up what is over, and what the gang does not wait for or is not short of."""
        waits, lasts = _waits(known.gang), known.gang.phase in KEEPING
        for slot in [s for s in known.slots if now >= s.spot.until or not (lasts if s.grown else waits)]:
            self.drop(known, slot)
        kept = _beside(known)
        for kind in list(kept):
            while kept[kind] and not known.gang.needs(*kind, kept - Counter([kind])):
                self.drop(known, _spare(known, kind))
                kept[kind] -= 1

    def check(self, uid: str) -> None:
        """Give up what is kept under this name in the books, if it is no good any more."""
        known = self._of[uid]
        slot = next(slot for slot in known.slots if slot.keeper.ref.uid == uid)
        if not self._stands(slot):
            self.drop(known, slot)

    def check_all(self, known: Known) -> None:
        """The same of all that is kept for a gang."""
        for slot in [slot for slot in known.slots if not self._stands(slot)]:
            self.drop(known, slot)

    def take(self, known: Known, coming: Iterable[Member], now: float) -> Iterator[tuple[Member, Spot]]:
        """Who of those that come gets which place, since it was kept for such a member."""
        in_vain: set[tuple[str, PodAsk | None]] = set()
        for member in coming:
            kind = member.role, self._ledger.pods[member.uid].ask
            slot = None if kind in in_vain else next(self._suitable(known, member.uid, kind), None)
            if slot is None:
                in_vain.add(kind)
            else:
                self.drop(known, slot)
                until = max(slot.spot.until, now + self._patience.stuck_s)
                yield member, msgspec.structs.replace(slot.spot, until=until)

    def drop(self, known: Known, slot: Slot) -> None:
        """Keep it no longer."""
        known.slots.remove(slot)
        self._ledger.unbind(slot.keeper)
        del self._ledger.slots[slot.keeper.ref.uid], self._of[slot.keeper.ref.uid]

    def _stands(self, slot: Slot) -> bool:
        node = self._ledger.nodes.get(slot.spot.node)
        usable = node is not None and not node.unschedulable and not node.leaving
        return usable and stands(slot.spot, slot.keeper.ref.uid, slot.keeper.ask, node)

    def _suitable(self, known: Known, uid: str, kind: tuple[str, PodAsk | None]) -> Iterator[Slot]:
        alike = (slot for slot in known.slots if (slot.role, slot.keeper.ask) == kind)
        return (slot for slot in alike if self._suits(slot, uid))

    def _suits(self, slot: Slot, uid: str) -> bool:
        """Whether a pod that asks the same GPUs asks nothing more beside them, and may go to that node."""
        node, room = self._ledger.nodes[slot.spot.node], dict(slot.keeper.requests)
        if any(amount > room.get(resource, 0) for resource, amount in self._ledger.pods[uid].requests):
            return False
        return self._starts.wishes[uid][1].admits(node) and not self._starts.excluded.get(uid, 0) >> node.number & 1


def _waits(gang: Gang) -> bool:
    return gang.phase in KEEPING and gang.terms.on_member_lost == "wait"


def _beside(known: Known) -> Counter[tuple[str, bool]]:
    """What is kept: how often for which role, and whether for a required member."""
    return Counter((slot.role, slot.required) for slot in known.slots if not slot.grown)


def _spare(known: Known, kind: tuple[str, bool]) -> Slot:
    """Of what is kept for this role what is to be given up first: where another process has sent somebody, as it seems,

    else the oldest.
    """
    came: dict[str, float] = {}
    for member in known.gang.members.values():
        if member.stage is Stage.BOUND and member.role == kind[0]:
            came[member.node] = max(member.bound_at, came.get(member.node, -math.inf))
    alike = [slot for slot in known.slots if (slot.role, slot.required) == kind and not slot.grown]
    refilled = (s for s in alike if came.get(s.spot.node, -math.inf) >= s.keeper.since - CLOCKS_S)
    return next(refilled, alike[0])
