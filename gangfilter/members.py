"""The members of one gang: their stages, and how many count."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import msgspec

from protos.contract.bounds import ROLES
from protos.contract.objects import OwnerReference


class Stage(IntEnum):
    """How far a member's placement has come."""

    ABSENT = 0
    """It exists, but does not count: gated, ending, another scheduler's, or of an earlier life of the gang."""
    IDLE = 1
    PLANNED = 2
    """A place is held for it."""
    IN_BIND = 3
    """Its bind is kept waiting."""
    POSTED = 4
    """Its Binding is being written."""
    BOUND = 5
    SUCCEEDED = 6
    EVICTING = 7
    """It is bound, and its eviction was asked for."""


ON_NODE = (Stage.POSTED, Stage.BOUND)
SETTLED = (Stage.BOUND, Stage.SUCCEEDED)
ARRIVED = (Stage.IN_BIND, *SETTLED)
PLACED = (Stage.PLANNED, *ARRIVED)
PRESENT = (Stage.IDLE, Stage.POSTED, *PLACED)
HOLDING = (Stage.PLANNED, Stage.IN_BIND)
"""Those with a held place and no Binding yet."""
OPEN = (Stage.IDLE, Stage.PLANNED, Stage.IN_BIND, Stage.POSTED, Stage.BOUND)
"""Those whose work is not done."""


class Member(msgspec.Struct):
    """One pod of a gang. Only `Members` changes its stage."""

    uid: str
    name: str
    role: str = ""
    required: bool = False
    """Always part of the minimum."""
    leader: str = ""
    """The role of a pod that may be made only when this one runs."""
    controller: OwnerReference | None = None
    """Its controller, which replaces it when it is deleted; None if it has none."""
    origins: frozenset[str] = frozenset()
    """The workloads that the pod is part of."""
    priority: int = 0
    created: float = 0.0
    """When the pod was created, by the API server's clock."""
    since: float = 0.0
    """When the pod was first seen."""
    stage: Stage = Stage.ABSENT
    node: str = ""
    epoch: int = 0
    """The start that bound it, 0 if none of ours did."""
    start_size: int = 0
    """How many members that start had, 0 if unknown."""
    bound_at: float = 0.0
    refused: bool = False
    """kube-scheduler does not try it again by itself."""
    succeeded: bool = False
    """Its pod has succeeded and still exists; the stage says whether that counts in this life of the gang."""
    preempted: bool = False
    """It was evicted for other workloads."""
    denied_at: float = 0.0
    """When kube-scheduler first refused its planned node, 0 if it does not."""

    @property
    def owner(self) -> str:
        """UID of its controller, "" if there is none."""
        return self.controller.uid or self.controller.name if self.controller is not None else ""

    @property
    def removable(self) -> bool:
        """Whether we may evict it once it is bound: we bound it, and its controller replaces it."""
        return bool(self.owner) and self.epoch > 0


class Members:
    """Members by UID, and how many there are of each kind: the tally always agrees with the members' stages."""

    __slots__ = ("_past", "_priority", "_tally", "arrivals", "members", "turnover", "unheld")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self._tally: dict[tuple[Stage, str, bool], int] = {}
        """Number of members by stage, role and whether they are required."""
        self._past: dict[tuple[str, bool], int] = {}
        """Number of deleted members that succeeded and count, by role and whether they are required."""
        self.unheld: dict[str, None] = {}
        """UIDs of externally bound members: their bind cannot wait at the barrier."""
        self.arrivals = 0
        self.turnover = 0
        """How often a member began to count, and how often one began or ceased to."""
        self._priority = (-1, 0)
        """The highest priority of the members that count, after the turnover for which it was computed."""

    @property
    def priority(self) -> int:
        """The highest priority of the members that count, 0 if none does."""
        turnover, highest = self._priority
        if turnover != self.turnover:
            highest = max((m.priority for m in self.members.values() if m.stage is not Stage.ABSENT), default=0)
            self._priority = self.turnover, highest
        return highest

    def at(self, *stages: Stage) -> list[Member]:
        """The members at these stages, by name."""
        return sorted((m for m in self.members.values() if m.stage in stages), key=lambda m: (m.name, m.uid))

    def holding(self) -> list[Member]:
        return self.at(*HOLDING)

    def count(self, *stages: Stage) -> int:
        return sum(n for (stage, _, _), n in self._tally.items() if stage in stages)

    def required(self, *stages: Stage) -> int:
        """How many required members are at these stages."""
        return sum(n for (stage, _, required), n in self._tally.items() if required and stage in stages)

    def roles(self, *stages: Stage) -> Counter[str]:
        """Number of members at these stages by role."""
        found: Counter[str] = Counter()
        for (stage, role, _), n in self._tally.items():
            if stage in stages:
                found[role] += n
        return found

    def put(self, member: Member, stage: Stage) -> None:
        """Move a member, maybe a new one, to this stage."""
        if self.members.get(member.uid) is member:
            self._count(member.stage, member.role, member.required, -1)
        self.members[member.uid] = member
        self.arrivals += member.stage is Stage.ABSENT and stage is Stage.IDLE
        self.turnover += (member.stage is Stage.ABSENT) != (stage is Stage.ABSENT)
        if stage not in (Stage.SUCCEEDED, Stage.ABSENT):
            member.succeeded = False  # its status said so, but it works after all
        member.stage = stage
        self._count(stage, member.role, member.required, 1)

    def _count(self, stage: Stage, role: str, required: bool, more: int) -> None:
        """Add to the tally; kinds without members are dropped."""
        kind = stage, role, required
        left = self._tally.get(kind, 0) + more
        if left:
            self._tally[kind] = left
        else:
            del self._tally[kind]
            if len(self._tally) == 1:
                self._tally = dict(self._tally)  # frees the memory of a large table

    def remove(self, uid: str) -> None:
        """Forget a member."""
        member = self._drop(uid)
        self.turnover += member.stage is not Stage.ABSENT

    def _drop(self, uid: str) -> Member:
        member = self.members.pop(uid)
        self.unheld.pop(uid, None)
        self._count(member.stage, member.role, member.required, -1)
        return member

    def succeed(self, uid: str) -> None:
        member = self.members[uid]
        if not member.succeeded:
            member.succeeded = True
            self.put(member, Stage.SUCCEEDED)

    def vanish(self, uid: str) -> bool:
        """The member's pod is deleted; returns whether the member still counts, because it succeeded."""
        if not self.members[uid].succeeded:
            return False
        member = self._drop(uid)
        self._priority = (-1, 0)
        if member.stage is Stage.SUCCEEDED:
            known = len(self._past) < ROLES.most or (member.role, member.required) in self._past
            role = member.role if known else ""  # bounds the memory where each member has a role of its own
            self._past[role, member.required] = self._past.get((role, member.required), 0) + 1
            self._count(Stage.SUCCEEDED, role, member.required, 1)
        return True

    def recall(self) -> None:
        """Before a start, succeeded members count only if they belong to members that still exist.

        They do if they started together or have the same controller. Others are of an earlier life of the gang.
        """
        for (role, required), past in self._past.items():
            self._count(Stage.SUCCEEDED, role, required, -past)
            self.turnover += past
        self._past.clear()
        succeeded = [m for m in self.members.values() if m.succeeded]
        if not succeeded:
            return
        open_members = [m for m in self.members.values() if m.stage in OPEN]
        owners = {m.owner for m in open_members if m.owner}
        epoch = max((m.epoch for m in open_members), default=0)
        for member in succeeded:
            counts = not open_members or member.owner in owners or (epoch > 0 and member.epoch == epoch)
            self.put(member, Stage.SUCCEEDED if counts else Stage.ABSENT)
