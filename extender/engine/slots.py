"""Slots: the rooms of lost members, which a gang that waits for others in their place keeps from everybody else.

A slot is what the member held on its node, to the very GPU. It is a soft charge with an end, booked under a name of its
own, since the member is no pod any more. A gang keeps no more of them than it is short of members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from extender.engine.effects import PodRef
from extender.engine.ledger import Ledger, PodState
from extender.engine.roster import Known, Slot
from extender.engine.seats import Spot, stands
from extender.engine.starts import Starts
from gangfilter.gang import Gang, Patience
from gangfilter.members import Member, Stage
from gangfilter.table import Phase

KEEPING = (Phase.BINDING, Phase.RUNNING, Phase.DEGRADED)
"""Phases in which a lost member is waited for."""
CLOCKS_S = 1.0
"""The API's clock shows whole seconds."""


class Slots:
    """All that is kept, for all gangs."""

    def __init__(self, ledger: Ledger, starts: Starts, patience: Patience) -> None:
        self._ledger, self._starts, self._patience = ledger, starts, patience
        self._of: dict[str, Known] = {}

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
        keeper = PodState(PodRef(pod.ref.namespace, pod.ref.name, f"slot-{pod.ref.uid}"), now)
        keeper.asked, keeper.requests = pod.asked, pod.requests
        self._ledger.slots[keeper.ref.uid] = keeper
        self._ledger.hold(keeper, spot.node, spot.charges)
        self._of[keeper.ref.uid] = known
        known.slots.append(Slot(keeper, member.role, member.required, spot))

    def trim(self, known: Known, now: float) -> None:
        """Give up what is over, what is no good any more, and what the gang is not short of."""
        gang, came, kept = known.gang, _arrivals(known.gang), _beside(known)
        wanted: dict[tuple[str, bool], bool] = {}
        for slot in sorted(known.slots, key=lambda slot: (not _refilled(came, slot), slot.keeper.since)):
            kind = slot.role, slot.required
            if kind not in wanted:
                wanted[kind] = _waits(gang) and gang.needs(*kind, kept - Counter([kind]))
            if not wanted[kind] or now >= slot.spot.until or not self._stands(slot):
                self.drop(known, slot)
                kept[kind] -= 1
                wanted.clear()

    def take(self, known: Known, member: Member, now: float) -> Spot | None:
        """The place that a member gets which comes for one that was lost; None if nothing suits it."""
        for slot in known.slots:
            if slot.role == member.role and self._suits(slot, member.uid):
                self.drop(known, slot)
                until = max(slot.spot.until, now + self._patience.stuck_s)
                return msgspec.structs.replace(slot.spot, until=until)
        return None

    def drop(self, known: Known, slot: Slot) -> None:
        """Keep it no longer."""
        known.slots.remove(slot)
        self._ledger.unbind(slot.keeper)
        del self._ledger.slots[slot.keeper.ref.uid], self._of[slot.keeper.ref.uid]

    def _stands(self, slot: Slot) -> bool:
        node = self._ledger.nodes.get(slot.spot.node)
        usable = node is not None and not node.unschedulable
        return usable and stands(slot.spot, slot.keeper.ref.uid, slot.keeper.ask, node)

    def _suits(self, slot: Slot, uid: str) -> bool:
        """Whether the pod asks the same GPUs, nothing more beside them, and may go to that node."""
        pod, node = self._ledger.pods[uid], self._ledger.nodes[slot.spot.node]
        room = dict(slot.keeper.requests)
        if pod.ask != slot.keeper.ask or any(amount > room.get(resource, 0) for resource, amount in pod.requests):
            return False
        return self._starts.wishes[uid][1].admits(node) and not self._starts.excluded.get(uid, 0) >> node.number & 1


def _waits(gang: Gang) -> bool:
    return gang.phase in KEEPING and gang.terms.on_member_lost == "wait"


def _beside(known: Known) -> Counter[tuple[str, bool]]:
    """What is kept: how often for which role, and whether for a required member."""
    return Counter((slot.role, slot.required) for slot in known.slots)


def _arrivals(gang: Gang) -> dict[tuple[str, str], float]:
    """When a member of this role was last bound to this node."""
    found: dict[tuple[str, str], float] = {}
    for member in gang.members.values():
        if member.stage is Stage.BOUND:
            place = member.node, member.role
            found[place] = max(member.bound_at, found.get(place, member.bound_at))
    return found


def _refilled(came: Mapping[tuple[str, str], float], slot: Slot) -> bool:
    """Whether, as it seems, the member that came for the lost one was sent there by another process."""
    return came.get((slot.spot.node, slot.role), float("-inf")) >= slot.keeper.since - CLOCKS_S
