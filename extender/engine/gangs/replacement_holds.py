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

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.members import MemberController
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo, ReplacementHold
from extender.engine.state.seats import Assignment, stands
from extender.engine.types.effects import PodRef
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from gangfilter.minimum import needs
from gangfilter.table import Phase
from protos.contract.ask import PodAsk

KEEPING = (Phase.BINDING, Phase.RUNNING, Phase.DEGRADED)
"""Phases in which a lost member is waited for."""
CLOCKS_S = 1.0
"""The API's clock shows whole seconds."""


class ReplacementHolds:
    """All that is kept, for all gangs, until a member comes for it or the gang needs it no more."""

    def __init__(self, context: GangContext, members: MemberController) -> None:
        self._ledger, self._patience = context.ledger, context.settings.patience
        self._roster, self._assignments, self._members = context.roster, context.assignments, members
        self._of: dict[str, GangInfo] = {}
        self._grown = 0
        """Counts the places kept for one more."""

    def of(self, uid: str) -> GangInfo | None:
        """The gang for which something is kept under this name in the books, None if nothing is."""
        return self._of.get(uid)

    def holds(self, pod: PodState) -> bool:
        """Whether a place is kept under this name in the books."""
        return pod.ref.uid in self._of

    def keep(self, known: GangInfo, member: Member, pod: PodState, now: float) -> None:
        """The member, which was bound and is lost, leaves its room, if its gang is short of one and waits for it."""
        node = self._ledger.nodes.get(pod.node)
        if pod.state != "bound" or node is None or member.preempted or not self._patience.replacement_hold_s:
            return
        if not _waits(known.gang) or not needs(known.gang, member.role, member.required, _beside(known)):
            return
        entry = node.books.entries.get(pod.ref.uid) if node.books is not None else None
        if pod.unusable or (entry is not None and not entry.placed):
            return  # nobody says on which GPUs it was
        given = pod.allocation.containers if entry is not None and pod.allocation is not None else {}
        assignment = Assignment(
            node.name, entry.charges if entry else {}, given, now + self._patience.replacement_hold_s
        )
        self._ledger.unbind(pod)
        keeper = self._keeper(known, pod, pod.ref.name, pod.ref.uid, assignment, now)
        known.replacements.append(ReplacementHold(keeper, member.role, member.required, assignment))
        self.check(keeper.ref.uid)

    def grow(self, known: GangInfo, model: PodState, role: str, assignments: Iterable[Assignment], now: float) -> None:
        """These places are kept for members to come that ask what `model` does."""
        name = known.gang.key.name
        for assignment in assignments:
            self._grown += 1
            keeper = self._keeper(known, model, name, f"{known.gang.key}-{self._grown}", assignment, now)
            known.replacements.append(ReplacementHold(keeper, role, required=False, assignment=assignment, grown=True))

    def growing(self) -> list[GroupKey]:
        """The gangs for which places are kept for one more."""
        kept = {known.gang.key: known for known in self._of.values()}
        return [key for key, known in kept.items() if any(replacement.grown for replacement in known.replacements)]

    def _keeper(
        self, known: GangInfo, like: PodState, name: str, uid: str, assignment: Assignment, now: float
    ) -> PodState:
        """What holds the place in the books."""
        keeper = PodState(PodRef(like.ref.namespace, name, f"slot-{uid}"), now)
        keeper.asked, keeper.requests = like.asked, like.requests
        self._ledger.keepers[keeper.ref.uid] = keeper
        self._ledger.hold(keeper, assignment.node, assignment.charges)
        self._of[keeper.ref.uid] = known
        known.offering = True
        return keeper

    def refill(self, known: GangInfo, now: float, *coming: Member) -> None:
        """Give members that come for lost ones what was kept of those; keep nothing that the gang does not need."""
        if not known.replacements:
            return
        self.trim(known, now)
        if not known.replacements or not self._roster.leading:
            return
        if known.offering:
            known.offering, coming = False, tuple(known.gang.at(Stage.IDLE))
        waiting = [m for m in coming if m.stage is Stage.IDLE and self._ledger.pods[m.uid].state == "waiting"]
        for member, assignment in list(self.take(known, waiting, now)):
            self._members.seat(known.gang, member, assignment)

    def trim(self, known: GangInfo, now: float) -> None:
        """Give up what is over, and what the gang does not wait for or is not short of."""
        waits, lasts = _waits(known.gang), known.gang.phase in KEEPING
        for replacement in list(known.replacements):
            if now >= replacement.assignment.until or not (lasts if replacement.grown else waits):
                self.drop(known, replacement)
        kept = _beside(known)
        for kind in list(kept):
            while kept[kind] and not needs(known.gang, *kind, kept - Counter([kind])):
                self.drop(known, _spare(known, kind))
                kept[kind] -= 1

    def check(self, uid: str) -> None:
        """Give up what is kept under this name in the books, if it is no good any more."""
        known = self._of[uid]
        replacement = next(replacement for replacement in known.replacements if replacement.keeper.ref.uid == uid)
        if not self._stands(replacement):
            self.drop(known, replacement)

    def check_all(self, known: GangInfo) -> None:
        """The same of all that is kept for a gang."""
        for replacement in [kept for kept in known.replacements if not self._stands(kept)]:
            self.drop(known, replacement)

    def take(self, known: GangInfo, coming: Iterable[Member], now: float) -> Iterator[tuple[Member, Assignment]]:
        """Who of those that come gets which place, since it was kept for such a member."""
        unsuited: set[tuple[str, PodAsk | None]] = set()
        for member in coming:
            kind = member.role, self._ledger.pods[member.uid].ask
            replacement = None if kind in unsuited else next(self._suitable(known, member.uid, kind), None)
            if replacement is None:
                unsuited.add(kind)
            else:
                self.drop(known, replacement)
                until = max(replacement.assignment.until, now + self._patience.stuck_s)
                yield member, msgspec.structs.replace(replacement.assignment, until=until)

    def drop(self, known: GangInfo, replacement: ReplacementHold) -> None:
        """Keep it no longer."""
        known.replacements.remove(replacement)
        self._ledger.unbind(replacement.keeper)
        del self._ledger.keepers[replacement.keeper.ref.uid], self._of[replacement.keeper.ref.uid]

    def _stands(self, replacement: ReplacementHold) -> bool:
        node = self._ledger.nodes.get(replacement.assignment.node)
        usable = node is not None and not node.unschedulable and not node.leaving
        return usable and stands(replacement.assignment, replacement.keeper.ref.uid, replacement.keeper.ask, node)

    def _suitable(self, known: GangInfo, uid: str, kind: tuple[str, PodAsk | None]) -> Iterator[ReplacementHold]:
        alike = (kept for kept in known.replacements if (kept.role, kept.keeper.ask) == kind)
        return (kept for kept in alike if self._suits(kept, uid))

    def _suits(self, replacement: ReplacementHold, uid: str) -> bool:
        """Whether a pod that asks the same GPUs asks nothing more beside them, and may go to that node."""
        node, room = self._ledger.nodes[replacement.assignment.node], dict(replacement.keeper.requests)
        if any(amount > room.get(resource, 0) for resource, amount in self._ledger.pods[uid].requests):
            return False
        excluded = self._ledger.excluded.get(uid, 0)
        return self._assignments.demands[uid][1].admits(node) and not excluded >> node.number & 1


def _waits(gang: Gang) -> bool:
    return gang.phase in KEEPING and gang.terms.on_member_lost == "wait"


def _beside(known: GangInfo) -> Counter[tuple[str, bool]]:
    """What is kept: how often for which role, and whether for a required member."""
    return Counter((kept.role, kept.required) for kept in known.replacements if not kept.grown)


def _spare(known: GangInfo, kind: tuple[str, bool]) -> ReplacementHold:
    """Of what is kept for this role what is to be given up first: where another process has sent somebody, as it seems,

    else the oldest.
    """
    came: dict[str, float] = {}
    for member in known.gang.members.values():
        if member.stage is Stage.BOUND and member.role == kind[0]:
            came[member.node] = max(member.bound_at, came.get(member.node, -math.inf))
    alike = [kept for kept in known.replacements if (kept.role, kept.required) == kind and not kept.grown]
    refilled = (s for s in alike if came.get(s.assignment.node, -math.inf) >= s.keeper.since - CLOCKS_S)
    return next(refilled, alike[0])
