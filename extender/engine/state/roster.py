"""The gangs, their members, and what pods and PodGroups declare about each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Assignment
from extender.engine.types.effects import GroupStatus
from extender.engine.types.subject import Subject, of_gang
from extender.engine.types.wall import Wall
from gangfilter.agreement import Agreement, shared
from gangfilter.gang import STARTED, Gang, Patience
from gangfilter.group import Declaration, GroupKey, Membership
from gangfilter.members import HOLDING, ON_NODE, Member
from gangfilter.origins import origins
from gangfilter.table import Phase
from protos.contract.objects import Pod
from protos.contract.reason import Reason

T = TypeVar("T")
PAST_BARRIER = (*STARTED, Phase.UNDOING, Phase.COMPLETED)
"""Phases in which a gang keeps its terms when its minimum is no longer declared."""


class ReplacementHold(msgspec.Struct, frozen=True, eq=False):
    """GPUs held for a member to come: the replacement of a lost member, or an additional member."""

    keeper: PodState
    """Stands for the member in the books, with the lost pod's name."""
    role: str
    required: bool
    assignment: Assignment
    grown: bool = False
    """For an additional member, whether the gang needs it or not."""


class GangInfo(msgspec.Struct):
    """A gang and all that is recorded about it."""

    gang: Gang
    agreement: Agreement = msgspec.field(default_factory=Agreement)
    """The declarations of its pods and PodGroups, together."""
    declared: dict[str, Declaration] = msgspec.field(default_factory=dict)
    """The declarations of PodGroups, by kind."""
    reason: Reason | None = None
    """Why it is pending, None if it is not."""
    rests_until: float = 0.0
    """When it may be planned again after a plan without solution."""
    planned: tuple[int, int] | None = None
    """The counters of freed capacity and of member changes at the last plan. None: it is to be planned."""
    replacements: list[ReplacementHold] = msgspec.field(default_factory=list)
    """Oldest first."""
    offering: bool = False
    """Some holds may suit members that are already pending."""
    outsiders: dict[str, Declaration | None] = msgspec.field(default_factory=dict)
    """Pods of other workloads, which wait until the gang has ended, by UID; and what they would declare."""
    closed_to_all_but: frozenset[str] = frozenset()
    """The workloads by which the outsiders were told apart; empty if every pod may join."""
    left_at: float = math.inf
    """When the last pod but outsiders was gone, infinity while there is one."""
    counted_in: str = ""
    """The queue in which its members count."""
    renamed: bool = False
    """Another queue is declared for it, and counts after a restart."""
    hopeless: tuple[int, int] | None = None
    """The kinds of nodes (`CannotFit.generation`) and members (`Gang.turnover`) with which it cannot start."""
    parked: bool = False
    """It waits for its queue, and everything was reported: until the queue has capacity, time does not move it."""
    evicted_at: float = 0.0
    failed: dict[str, None] = msgspec.field(default_factory=dict)
    """UIDs of its failed pods that still exist."""
    told: GroupStatus | None = None
    """The last status written."""
    reported: tuple[Reason | None, float] = (None, 0.0)
    """The reason of the last Event, and its time."""
    capped: Reason | None = None
    """The last Event about a capped priority."""
    warned: tuple[str, ...] = ()
    """The conflicts in the last Event about them."""

    @property
    def subject(self) -> Subject:
        return of_gang(self.gang.key)


class Roster:
    """All gangs and their members."""

    def __init__(self, patience: Patience, wall: Wall) -> None:
        self._patience, self._wall = patience, wall
        self.known: dict[GroupKey, GangInfo] = {}
        self._of: dict[str, GangInfo] = {}
        self._saying: dict[str, Declaration] = {}
        self.leading = True
        """This process may plan, hold and evict."""
        self.replayed = False
        """All pods and PodGroups are listed; before, no gang moves."""
        self.keeps_queues = False
        """All objects are listed and this process leads: a running gang stays in its queue."""

    def of(self, uid: str) -> GangInfo | None:
        """The gang of a pod, None if it has none."""
        return self._of.get(uid)

    def single(self, uid: str) -> bool:
        """Whether the pod is placed like a single pod: its gang, if any, has started, and holds no place for it."""
        known = self._of.get(uid)
        if known is None or uid in known.outsiders:
            return known is None
        return known.gang.phase in STARTED and known.gang.members[uid].stage not in HOLDING

    def surplus(self, uid: str) -> bool:
        """Whether the pod is a surplus member of a running gang."""
        known = self._of.get(uid)
        if known is None or uid in known.outsiders:
            return False
        return known.gang.phase is Phase.RUNNING and not known.gang.members[uid].required

    def singles(self, uids: Iterable[str]) -> list[str]:
        """Those of these pods that are not members of a gang."""
        return [uid for uid in uids if uid not in self._of]

    def beside(self, uid: str) -> list[str]:
        """The node of each member of a pod's gang that has one."""
        known = self._of.get(uid)
        return [member.node for member in known.gang.at(*ON_NODE)] if known is not None else []

    def gang(self, key: GroupKey, now: float) -> GangInfo:
        """The gang with this key; created if it does not exist."""
        if key not in self.known:
            self.known[key] = GangInfo(Gang(key, self._patience, now))
        return self.known[key]

    def join(self, pod: Pod, said: Membership, now: float) -> GangInfo:
        """Make the pod a member that does not count yet."""
        meta = pod.metadata
        known = self._of[meta.uid] = self.gang(said.key, now)
        controllers = (owner for owner in meta.owner_references if owner.controller)
        like, of = next(iter(known.gang.members.values()), None), origins(pod)
        member = Member(
            uid=meta.uid,
            name=meta.name,
            role=said.role,
            required=said.required,
            leader=said.leader,
            controller=_shared(like.controller if like else None, next(controllers, None)),
            origins=_shared(like.origins if like else of, of),
            priority=pod.spec.priority or 0,
            created=self.clock(meta.creation_timestamp, now),
            since=now,
        )
        known.gang.join(member, now)
        if known.renamed:
            self.agree(known)
        return known

    def quit(self, uid: str) -> None:
        """Remove the member and its declaration."""
        known = self._of.pop(uid)
        known.outsiders.pop(uid, None)
        said = self._saying.pop(uid, None)
        if said is not None:
            known.agreement.remove(said)
        if known.renamed or (said is not None and known.agreement):  # the last member leaves its terms to the next ones
            self.agree(known)

    def say(self, uid: str, said: Declaration | None) -> bool:
        """Set the pod's declaration about its gang; returns whether the gang's terms may have changed."""
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

    def conflicts(self, uid: str) -> tuple[str, ...]:
        """Sentences about values of the pod's gang that differ or cannot be read; of a pod without one, its own."""
        known, said = self._of.get(uid), self._saying.get(uid)
        if known is None or uid in known.outsiders:
            return ()
        return known.gang.terms.conflicts if known.gang.key.name else said.problems if said is not None else ()

    def said(self, uid: str) -> Declaration | None:
        """The pod's declaration about its gang."""
        return self._saying.get(uid)

    def declare(self, known: GangInfo, kind: str, said: Declaration | None) -> None:
        """Set the declaration of a PodGroup of this kind, None if it is gone."""
        former = known.declared.pop(kind, None)
        if former is not None:
            known.agreement.remove(former)
        if said is not None:
            known.declared[kind] = said
            known.agreement.add(said)
        self.agree(known)

    def agree(self, known: GangInfo) -> None:
        """Derive the gang's terms from all declarations."""
        terms, former = known.agreement.terms(), known.gang.terms.queue
        known.renamed = self.keeps_queues and terms.queue != former and known.gang.count(*ON_NODE) > 0
        if known.renamed:
            conflict = f"queue {terms.queue or 'none'} is named, but running members stay in the queue of their start"
            terms = msgspec.structs.replace(terms, queue=former, conflicts=(*terms.conflicts, conflict))
        unknown = terms.min_member is None and known.gang.phase in PAST_BARRIER
        if not unknown and terms != known.gang.terms:
            known.gang.terms, known.planned = terms, None

    def clean(self, known: GangInfo) -> bool:
        """Drop the gang if it has no member and no PodGroup; returns whether it was dropped."""
        empty = not known.declared and not any(uid in self._of for uid in known.gang.members)
        return empty and self.known.pop(known.gang.key, None) is not None

    def clock(self, timestamp: str | None, now: float) -> float:
        """A timestamp of the API on the monotonic clock; now, if it is missing or malformed."""
        return self._wall.clock(timestamp, now)


def _shared(of_other: T, own: T) -> T:
    """The object of another member, if it is equal: most members of a gang have one controller."""
    return of_other if of_other == own else own
