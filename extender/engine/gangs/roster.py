"""Which gangs there are, who belongs to which, and what is said about each."""

from __future__ import annotations

from collections import Counter

import msgspec

from extender.engine.books.ledger import PodState
from extender.engine.effects import GroupStatus
from extender.engine.planning.seats import Spot
from gangfilter.gang import STARTED, Gang, Patience
from gangfilter.group import Declaration, GroupKey, Membership, agree
from gangfilter.members import Member
from gangfilter.table import Phase
from protos.contract.objects import Pod, epoch_seconds
from protos.contract.reason import Reason

PAST_BARRIER = (*STARTED, Phase.UNDOING, Phase.COMPLETED)
"""Phases in which a gang keeps its terms when nobody says its minimum any more."""


class Slot(msgspec.Struct, frozen=True, eq=False):
    """Room that is kept for a member to come: a lost one's, for the one in its place, or one more's."""

    keeper: PodState
    """What holds it in the books, by the lost pod's name."""
    role: str
    required: bool
    spot: Spot
    grown: bool = False
    """For one more; whether its gang needs it does not matter."""


class Known(msgspec.Struct):
    """A gang and what is said about it."""

    gang: Gang
    said: Counter[Declaration] = msgspec.field(default_factory=Counter)
    """By its pods: how many say it."""
    declared: dict[str, Declaration] = msgspec.field(default_factory=dict)
    """By PodGroups, by kind."""
    reason: Reason | None = None
    """Why it waits, None where it does not."""
    rests_until: float = 0.0
    """When it may be planned again, having found no room."""
    planned: tuple[int, int] | None = None
    """What it was last planned with: how often there had been room and members had come or gone. None: it is to be."""
    slots: list[Slot] = msgspec.field(default_factory=list)
    """Oldest first."""
    offering: bool = False
    """Some of them may suit members that wait already."""
    counted_in: str = ""
    """The queue that its members count in."""
    parked: bool = False
    """It waits for room in its queue, all that is to be said was said: until there is some, time does not matter."""
    evicted_at: float = 0.0
    failed: int = 0
    told: GroupStatus | None = None
    reported: tuple[Reason | None, float] = (None, 0.0)
    """What was last told in an Event, and when."""
    warned: tuple[str, ...] = ()
    """The conflicts that were last told in one."""


class Roster:
    """All gangs and their members."""

    def __init__(self, patience: Patience, wall: float) -> None:
        """`wall` is what the wall clock showed (s since 1970) when the monotonic clock showed zero."""
        self._patience, self._wall = patience, wall
        self.known: dict[GroupKey, Known] = {}
        self._of: dict[str, Known] = {}
        self._saying: dict[str, Declaration] = {}

    def of(self, uid: str) -> Known | None:
        """The gang of a pod, None if it is in none."""
        return self._of.get(uid)

    def gang(self, key: GroupKey, now: float) -> Known:
        """The gang of this name, a new one if there is none."""
        if key not in self.known:
            self.known[key] = Known(Gang(key, self._patience, now))
        return self.known[key]

    def join(self, pod: Pod, said: Membership, now: float) -> Known:
        """The pod is a member from now on, and counts nowhere yet."""
        meta = pod.metadata
        known = self._of[meta.uid] = self.gang(said.key, now)
        controllers = (owner.uid or owner.name for owner in meta.owner_references if owner.controller)
        member = Member(
            uid=meta.uid,
            name=meta.name,
            role=said.role,
            required=said.required,
            leader=said.leader,
            owner=next(controllers, ""),
            priority=pod.spec.priority or 0,
            created=self.clock(meta.creation_timestamp, now),
            since=now,
        )
        known.gang.join(member, now)
        return known

    def quit(self, uid: str) -> None:
        """The pod is no member any more, and says nothing."""
        known = self._of.pop(uid)
        said = self._saying.pop(uid, None)
        if said is not None:
            self._unsay(known, said)
            if known.said:  # the last to go leaves its terms, for those that come in its place
                self.agree(known)

    def say(self, uid: str, said: Declaration | None) -> bool:
        """What the pod says of its gang now; returns whether its terms may be others."""
        before, known = self._saying.get(uid), self._of[uid]
        if said == before:
            return False
        if before is not None:
            del self._saying[uid]
            self._unsay(known, before)
        if said is not None:
            self._saying[uid] = said
            known.said[said] += 1
            if known.said[said] > 1 and before is None:
                return False
        self.agree(known)
        return True

    def _unsay(self, known: Known, said: Declaration) -> None:
        known.said[said] -= 1
        if not known.said[said]:
            del known.said[said]

    def agree(self, known: Known) -> None:
        """What holds of all that is said and declared."""
        terms = agree([*known.said, *known.declared.values()])
        unknown = terms.min_member is None and known.gang.phase in PAST_BARRIER
        if not unknown and terms != known.gang.terms:
            known.gang.terms, known.planned = terms, None

    def clean(self, known: Known) -> bool:
        """Forget a gang of which nothing is left; returns whether it was one."""
        empty = not known.declared and not any(uid in self._of for uid in known.gang.members)
        return empty and self.known.pop(known.gang.key, None) is not None

    def clock(self, timestamp: str | None, now: float) -> float:
        """A time of the API on the monotonic clock; now, if there is none or it is yet to come."""
        try:
            return min(now, epoch_seconds(timestamp) - self._wall) if timestamp else now
        except ValueError:
            return now
