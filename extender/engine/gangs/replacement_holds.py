"""Replacement holds: the GPUs of lost members, held for their replacements; and places held for new members.

A hold is exactly what the lost member had on its node. It is a soft charge with an end, booked under a name of its own,
because the member's pod is gone. A gang has no more of them than it lacks members.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

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
from protos.contract.reason import Reason

KEEPING = (Phase.BINDING, Phase.RUNNING, Phase.DEGRADED)
"""Phases in which a gang waits for replacements."""
CLOCKS_S = 1.0
"""The API server's times are whole seconds."""
Kind = tuple[str, PodAsk | Reason | None]
"""A role and a GPU request."""


class ReplacementHolds:
    """The holds of all gangs, until a member takes them or the gang no longer needs them."""

    def __init__(self, context: GangContext, members: MemberController) -> None:
        self._ledger, self._patience = context.ledger, context.settings.patience
        self._roster, self._assignments, self._members = context.roster, context.assignments, members
        self._of: dict[str, GangInfo] = {}
        """The gang of each hold, by the hold's name in the books."""
        self._grown = 0
        """Number of places ever held for new members."""

    def of(self, uid: str) -> GangInfo | None:
        """The gang of the hold with this name in the books, None if there is none."""
        return self._of.get(uid)

    def holds(self, pod: PodState) -> bool:
        """Whether this is a hold."""
        return pod.ref.uid in self._of

    def keep(self, known: GangInfo, member: Member, pod: PodState, now: float) -> None:
        """Hold the GPUs of a lost bound member, if its gang waits for a replacement and needs one."""
        node = self._ledger.nodes.get(pod.node)
        if pod.state != "bound" or node is None or member.preempted or not self._patience.replacement_hold_s:
            return
        if not _waits(known.gang) or not needs(known.gang, member.role, member.required, _held(known)):
            return
        entry = node.books.entries.get(pod.ref.uid) if node.books is not None else None
        if pod.unusable or (entry is not None and not entry.placed):
            return  # its GPUs are unknown
        given = pod.allocation.containers if entry is not None and pod.allocation is not None else {}
        assignment = Assignment(
            node.name, entry.charges if entry else {}, given, now + self._patience.replacement_hold_s
        )
        self._ledger.unbind(pod)
        keeper = self._keeper(known, pod, pod.ref.name, pod.ref.uid, assignment, now)
        known.replacements.append(ReplacementHold(keeper, member.role, member.required, assignment))
        self.check(keeper.ref.uid)

    def grow(self, known: GangInfo, model: PodState, role: str, assignments: Iterable[Assignment], now: float) -> None:
        """Hold these places for new members, which request what `model` requests."""
        name = known.gang.key.name
        for assignment in assignments:
            self._grown += 1
            keeper = self._keeper(known, model, name, f"{known.gang.key}-{self._grown}", assignment, now)
            known.replacements.append(ReplacementHold(keeper, role, required=False, assignment=assignment, grown=True))

    def growing(self) -> list[GroupKey]:
        """The gangs with places for new members."""
        gangs = {known.gang.key: known for known in self._of.values()}
        return [key for key, known in gangs.items() if any(replacement.grown for replacement in known.replacements)]

    def _keeper(
        self, known: GangInfo, model: PodState, name: str, uid: str, assignment: Assignment, now: float
    ) -> PodState:
        """Book the place; returns the record that holds it in the books."""
        keeper = PodState(PodRef(model.ref.namespace, name, f"slot-{uid}"), now)
        keeper.asked, keeper.requests = model.asked, model.requests
        self._ledger.keepers[keeper.ref.uid] = keeper
        self._ledger.hold(keeper, assignment.node, assignment.charges)
        self._of[keeper.ref.uid] = known
        known.offering = True
        return keeper

    def refill(self, known: GangInfo, now: float, *coming: Member) -> None:
        """Give holds to members that can take them, and drop those that the gang does not need."""
        if not known.replacements:
            return
        self.trim(known, now)
        if not known.replacements or not self._roster.leading:
            return
        if known.offering:
            known.offering, coming = False, tuple(known.gang.at(Stage.IDLE))
        pending = [m for m in coming if m.stage is Stage.IDLE and self._ledger.pods[m.uid].state == "waiting"]
        unsuited: set[Kind] = set()
        for member in pending:
            kind = member.role, self._ledger.pods[member.uid].asked
            replacement = None if kind in unsuited else self._suitable(known, member.uid, kind)
            if replacement is None:
                unsuited.add(kind)
            else:
                self.drop(known, replacement)
                until = max(replacement.assignment.until, now + self._patience.stuck_s)
                place = msgspec.structs.replace(replacement.assignment, until=until)
                self._members.seat(known.gang, member, place)

    def trim(self, known: GangInfo, now: float) -> None:
        """Drop holds that have ended, and those that the gang does not wait for or does not need."""
        waits, lasts = _waits(known.gang), known.gang.phase in KEEPING
        for replacement in list(known.replacements):
            if now >= replacement.assignment.until or not (lasts if replacement.grown else waits):
                self.drop(known, replacement)
        held = _held(known)
        for kind in list(held):
            while held[kind] and not needs(known.gang, *kind, held - Counter([kind])):
                self.drop(known, _first_to_drop(known, kind))
                held[kind] -= 1

    def check(self, uid: str) -> None:
        """Drop the hold with this name in the books, if it is no longer usable."""
        known = self._of[uid]
        replacement = next(replacement for replacement in known.replacements if replacement.keeper.ref.uid == uid)
        if not self._is_usable(replacement):
            self.drop(known, replacement)

    def check_all(self, known: GangInfo) -> None:
        """Drop all holds of the gang that are no longer usable."""
        for replacement in [each for each in known.replacements if not self._is_usable(each)]:
            self.drop(known, replacement)

    def drop(self, known: GangInfo, replacement: ReplacementHold) -> None:
        """Give back what the hold has booked."""
        known.replacements.remove(replacement)
        self._ledger.unbind(replacement.keeper)
        del self._ledger.keepers[replacement.keeper.ref.uid], self._of[replacement.keeper.ref.uid]

    def _is_usable(self, replacement: ReplacementHold) -> bool:
        node = self._ledger.nodes.get(replacement.assignment.node)
        usable = node is not None and not node.unschedulable and not node.leaving
        return usable and stands(replacement.assignment, replacement.keeper.ref.uid, replacement.keeper.ask, node)

    def _suitable(self, known: GangInfo, uid: str, kind: Kind) -> ReplacementHold | None:
        """The first hold of this role and these GPUs that suits the pod."""
        equal = (each for each in known.replacements if (each.role, each.keeper.asked) == kind)
        return next((each for each in equal if self._suits(each, uid)), None)

    def _suits(self, replacement: ReplacementHold, uid: str) -> bool:
        """Whether the hold has all that the pod requests beside GPUs, and the pod may go to its node."""
        node, held = self._ledger.nodes[replacement.assignment.node], dict(replacement.keeper.requests)
        if any(amount > held.get(resource, 0) for resource, amount in self._ledger.pods[uid].requests):
            return False
        excluded = self._ledger.excluded.get(uid, 0)
        return self._assignments.demands[uid][1].admits(node) and not excluded >> node.number & 1


def _waits(gang: Gang) -> bool:
    return gang.phase in KEEPING and gang.terms.on_member_lost == "wait"


def _held(known: GangInfo) -> Counter[tuple[str, bool]]:
    """Number of replacement holds by role and by whether the member is required."""
    return Counter((each.role, each.required) for each in known.replacements if not each.grown)


def _first_to_drop(known: GangInfo, kind: tuple[str, bool]) -> ReplacementHold:
    """The hold on a node to which another process seems to have sent the replacement, else the oldest."""
    bound_at: dict[str, float] = {}
    for member in known.gang.members.values():
        if member.stage is Stage.BOUND and member.role == kind[0]:
            bound_at[member.node] = max(member.bound_at, bound_at.get(member.node, -math.inf))
    equal = [each for each in known.replacements if (each.role, each.required) == kind and not each.grown]
    refilled = (each for each in equal if bound_at.get(each.assignment.node, -math.inf) >= each.keeper.since - CLOCKS_S)
    return next(refilled, equal[0])
