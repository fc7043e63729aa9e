"""Which gangs there are, who belongs to which, and what is said about each."""

from __future__ import annotations

import msgspec

from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from extender.engine.types.effects import GroupStatus
from extender.engine.types.subject import Subject, of_gang
from extender.engine.types.wall import Wall
from gangfilter.agreement import Agreement, shared
from gangfilter.gang import STARTED, Gang, Patience
from gangfilter.group import Declaration, GroupKey, Membership
from gangfilter.members import ON_NODE, Member
from gangfilter.table import Phase
from protos.contract.objects import OwnerReference, Pod
from protos.contract.reason import Reason

PAST_BARRIER = (*STARTED, Phase.UNDOING, Phase.COMPLETED)
"""Phases in which a gang keeps its terms when nobody says its minimum any more."""


class ReplacementHold(msgspec.Struct, frozen=True, eq=False):
    """Room that is kept for a member to come: a lost one's, for the one in its place, or one more's."""

    keeper: PodState
    """What holds it in the books, by the lost pod's name."""
    role: str
    required: bool
    assignment: Assignment
    grown: bool = False
    """For one more; whether its gang needs it does not matter."""


class GangInfo(msgspec.Struct):
    """A gang and what is said about it."""

    gang: Gang
    agreement: Agreement = msgspec.field(default_factory=Agreement)
    """What its pods say and PodGroups declare, together."""
    declared: dict[str, Declaration] = msgspec.field(default_factory=dict)
    """By PodGroups, by kind."""
    reason: Reason | None = None
    """Why it waits, None where it does not."""
    rests_until: float = 0.0
    """When it may be planned again, having found no room."""
    planned: tuple[int, int] | None = None
    """What it was last planned with: how often there had been room and members had come or gone. None: it is to be."""
    replacements: list[ReplacementHold] = msgspec.field(default_factory=list)
    """Oldest first."""
    offering: bool = False
    """Some of them may suit members that wait already."""
    counted_in: str = ""
    """The queue that its members count in."""
    renamed: bool = False
    """Another queue is named for it, and counts when it starts anew."""
    parked: bool = False
    """It waits for room in its queue, all that is to be said was said: until there is some, time does not matter."""
    evicted_at: float = 0.0
    failed: dict[str, None] = msgspec.field(default_factory=dict)
    """UIDs of its pods that have failed, while they are there."""
    told: GroupStatus | None = None
    reported: tuple[Reason | None, float] = (None, 0.0)
    """What was last told in an Event, and when."""
    capped: Reason | None = None
    """Why its PriorityClass gives less than it says, as it was last told."""
    warned: tuple[str, ...] = ()
    """The conflicts that were last told in one."""

    @property
    def subject(self) -> Subject:
        """Whom work for it is done for."""
        return of_gang(self.gang.key)


class Roster:
    """All gangs and their members."""

    def __init__(self, patience: Patience, wall: Wall) -> None:
        self._patience, self._wall = patience, wall
        self.known: dict[GroupKey, GangInfo] = {}
        self._of: dict[str, GangInfo] = {}
        self._saying: dict[str, Declaration] = {}
        self.leading = True
        """This process may write; if not, nothing is planned, held or evicted."""
        self.replayed = False
        """All pods and groups were told; before, no gang goes anywhere."""
        self.keeps_queues = False
        """All of the cluster is known, and gangs are led here: one that runs stays in its queue."""

    def of(self, uid: str) -> GangInfo | None:
        """The gang of a pod, None if it is in none."""
        return self._of.get(uid)

    def surplus(self, uid: str) -> bool:
        """Whether a gang that runs has this member beyond its minimum."""
        known = self._of.get(uid)
        return known is not None and known.gang.phase is Phase.RUNNING and not known.gang.members[uid].required

    def beside(self, uid: str) -> list[str]:
        """The nodes of the members of a pod's gang that have one, a name for each."""
        known = self._of.get(uid)
        return [member.node for member in known.gang.at(*ON_NODE)] if known is not None else []

    def gang(self, key: GroupKey, now: float) -> GangInfo:
        """The gang of this name, a new one if there is none."""
        if key not in self.known:
            self.known[key] = GangInfo(Gang(key, self._patience, now))
        return self.known[key]

    def join(self, pod: Pod, said: Membership, now: float) -> GangInfo:
        """The pod is a member from now on, and counts nowhere yet."""
        meta = pod.metadata
        known = self._of[meta.uid] = self.gang(said.key, now)
        controllers = (owner for owner in meta.owner_references if owner.controller)
        member = Member(
            uid=meta.uid,
            name=meta.name,
            role=said.role,
            required=said.required,
            leader=said.leader,
            controller=_shared(known.gang, next(controllers, None)),
            priority=pod.spec.priority or 0,
            created=self.clock(meta.creation_timestamp, now),
            since=now,
        )
        known.gang.join(member, now)
        if known.renamed:
            self.agree(known)
        return known

    def quit(self, uid: str) -> None:
        """The pod is no member any more, and says nothing."""
        known = self._of.pop(uid)
        said = self._saying.pop(uid, None)
        if said is not None:
            known.agreement.remove(said)
        if known.renamed or (said is not None and known.agreement):  # the last to go leaves its terms to those to come
            self.agree(known)

    def say(self, uid: str, said: Declaration | None) -> bool:
        """What the pod says of its gang now; returns whether its terms may be others."""
        before, known = self._saying.get(uid), self._of[uid]
        if said == before:
            return False
        if before is not None:
            del self._saying[uid]
            known.agreement.remove(before)
        if said is not None:
            self._saying[uid] = said = shared(said)[0]
            if not known.agreement.add(said) and before is None:
                return False
        self.agree(known)
        return True

    def declare(self, known: GangInfo, kind: str, said: Declaration | None) -> None:
        """What a PodGroup of this kind says of the gang now; None if it is gone."""
        former = known.declared.pop(kind, None)
        if former is not None:
            known.agreement.remove(former)
        if said is not None:
            known.declared[kind] = said
            known.agreement.add(said)
        self.agree(known)

    def agree(self, known: GangInfo) -> None:
        """What holds of all that is said and declared."""
        terms, former = known.agreement.terms(), known.gang.terms.queue
        known.renamed = self.keeps_queues and terms.queue != former and known.gang.count(*ON_NODE) > 0
        if known.renamed:
            stays = f"queue {terms.queue or 'none'} is named: what runs stays in the queue in which it has started"
            terms = msgspec.structs.replace(terms, queue=former, conflicts=(*terms.conflicts, stays))
        unknown = terms.min_member is None and known.gang.phase in PAST_BARRIER
        if not unknown and terms != known.gang.terms:
            known.gang.terms, known.planned = terms, None

    def clean(self, known: GangInfo) -> bool:
        """Forget a gang of which nothing is left; returns whether it was one."""
        empty = not known.declared and not any(uid in self._of for uid in known.gang.members)
        return empty and self.known.pop(known.gang.key, None) is not None

    def clock(self, timestamp: str | None, now: float) -> float:
        """A time of the API on the monotonic clock, be it one that is yet to come; now, if there is none."""
        return self._wall.clock(timestamp, now)


def _shared(gang: Gang, controller: OwnerReference | None) -> OwnerReference | None:
    """The same object as another member has, if it is equal: of most gangs all have one controller."""
    other = next(iter(gang.members.values()), None)
    return other.controller if other is not None and other.controller == controller else controller
