"""One gang: its phase, its present start and its members.

`facts` says when the phase changes, `minimum` how many members there have to be. Books, plans and writes are its
owner's; `now` is in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from gangfilter.group import GroupKey, Terms
from gangfilter.members import PLACED, PRESENT, SETTLED, Member, Members, Stage
from gangfilter.table import Phase, Trigger, after

P = Phase
BEFORE = (P.ASSEMBLING, P.WAITING, P.FAILED)
"""Phases in which nobody has a place."""
STARTED = (P.BINDING, P.RUNNING, P.DEGRADED)
"""Phases in which a member goes on by itself: the gang as a whole has passed the barrier."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a gang may take, in seconds."""

    stuck_s: float = 15.0
    """Without a new member in bind, until a start is given up: kube-scheduler's podMaxBackoff and 5 s."""
    hold_s: float = 60.0
    """That a bind is kept waiting at most: half of the bind timeout."""
    again_s: float = 10.0
    """After a start that came to nothing, until the next: kube-scheduler's podMaxBackoff."""
    doublings: int = 5
    """How often that is doubled where the next comes to nothing either."""
    upsets: int = 32
    """Starts in a row whose places turned out to be none, after which the next one waits as well."""
    gang_bind_timeout_s: float = 30.0
    """From the first Binding until the gang must be whole, else it is undone."""
    replacement_hold_s: float = 300.0
    """For which the room of a lost member is kept for the one that comes in its place; 0: not at all."""


class Gang(Members):
    """A group of pods that start together.

    It owns its phase, the times of its present start and what its members do. It holds nothing until `start`; between
    `start` and its phase BINDING every planned member's bind is kept waiting.
    """

    __slots__ = (
        "_again_at", "_begun", "_made", "_most", "_paused_until", "_upsets",
        "arrivals_before", "began_at", "bereft", "due_at", "epoch", "key", "patience", "phase", "preempted",
        "progress_at", "ran", "released_at", "shaken", "since", "size", "started", "terms", "tries", "unasked", "upset",
        "vital",
    )  # fmt: skip

    def __init__(self, key: GroupKey, patience: Patience, now: float) -> None:
        super().__init__()
        self.key, self.patience = key, patience
        self.terms = Terms()
        self.phase = P.ASSEMBLING
        self.since = self._begun = now
        """When the phase began, and the gang's present life as far as this process has seen it."""
        self._made = math.inf
        """When the first of its members in this life was made, by the API's word."""
        self.epoch = 0
        self.size = 0
        """Members of the last start."""
        self.tries = 0
        """Starts in a row that came to nothing."""
        self.upset = False
        """A place of this start turned out to be none."""
        self._upsets = 0
        """In how many starts in a row."""
        self.preempted = False
        """Its room is taken for others: all of it goes, and nobody goes on by itself meanwhile."""
        self.unasked: dict[str, None] = {}
        """After a start in which nobody came: members that kube-scheduler must ask for once more before the next."""
        self.vital = 0
        """How many required members the last start had."""
        self.started: Mapping[str, int] = {}
        """How many of each role it had."""
        self._most = 0
        """How many of this start were in bind at the same time."""
        self.began_at: float | None = None
        """When the first member of this start came into bind."""
        self.progress_at = 0.0
        """When there were last more of them in bind than ever."""
        self.released_at = self.due_at = 0.0
        """When the Bindings began, and until when all must be bound."""
        self.arrivals_before = 0
        """How many members had come when the phase began."""
        self._paused_until = self._again_at = 0.0
        """No start before the one, nor before the other unless all have asked again."""
        self.ran = False
        """BINDING: it had been running, as far as can be known."""
        self.shaken = self.bereft = False
        """Since it was whole: a kubelet refused a member; a bound one was lost."""

    def may_plan(self, now: float) -> bool:
        """Whether it waits for nothing but room."""
        asked = now >= self._again_at or self.unasked.keys().isdisjoint(self.members)
        return self.phase is P.WAITING and now >= self._paused_until and asked

    @property
    def timed(self) -> bool:
        """Whether time alone may move it on."""
        return self.moves_at < math.inf

    @property
    def born(self) -> float:
        """When its present life began."""
        return min(self._begun, self._made)

    def shift(self, by: float) -> None:
        """All times of the API were so many seconds earlier than it seemed."""
        self._made -= by
        for member in self.members.values():
            member.created -= by
            member.bound_at -= by

    @property
    def moves_at(self) -> float:
        """When time alone may move it on: at any moment, when it has waited for too long, or never."""
        if self.phase in (P.STARTING, P.BINDING):
            return -math.inf
        limit = self.terms.schedule_timeout_s if self.phase in (P.ASSEMBLING, P.WAITING) else None
        return self.born + limit if limit and self.members else math.inf

    # -- what happens

    def join(self, member: Member, now: float) -> None:
        """A pod of this gang is there; it counts nowhere until it is put to a stage."""
        if not self.members and not self._past:
            self._begun, self._made = now, math.inf
        self._made = min(self._made, member.created)
        self.put(member, Stage.ABSENT)

    def put(self, member: Member, stage: Stage) -> None:
        if member.stage is Stage.BOUND and stage is Stage.ABSENT:
            self.bereft = True
        super().put(member, stage)

    def lose(self, uid: str, *, refused: bool = False) -> None:
        """A member is gone for good; `refused` by its kubelet, before it ran."""
        member = self.members.get(uid)
        if member is not None:
            self.bereft = self.bereft or member.stage is Stage.BOUND
            self.shaken = self.shaken or refused
            self.remove(uid)

    def start(self, places: Mapping[str, str], now: float) -> None:
        """Everybody in `places` (member → node) has one held from now on."""
        self.epoch += 1
        self.began_at, self.progress_at, self._most = None, now, 0
        for uid, node in places.items():
            member = self.members[uid]
            member.node = node
            self.put(member, Stage.PLANNED)
        self.size, self.vital, self.started = self.count(*PLACED), self.required(*PLACED), dict(self.roles(*PLACED))
        self.unasked.clear()
        self.upset = False
        self.enter(Trigger.PLANNED, now)

    def arrive(self, uid: str, now: float) -> None:
        """A planned member is in bind."""
        member = self.members[uid]
        if member.stage is not Stage.PLANNED:
            return
        self.put(member, Stage.IN_BIND)
        self.began_at = now if self.began_at is None else self.began_at
        if self.count(Stage.IN_BIND) > self._most:
            self._most, self.progress_at = self.count(Stage.IN_BIND), now

    def leave(self, uid: str) -> None:
        """Nobody waits for its bind any more."""
        member = self.members.get(uid)
        if member is not None and member.stage is Stage.IN_BIND:
            self.put(member, Stage.PLANNED)

    def post(self, uid: str, node: str) -> None:
        """The member's Binding is being written."""
        member = self.members[uid]
        member.node, member.epoch = node, self.epoch
        self.put(member, Stage.POSTED)

    def bound(self, uid: str, node: str, epoch: int, at: float, among: int = 0) -> None:
        """The member is bound, since when; `epoch` is that of its start, 0 if no start of ours bound it.

        `among`: how many members that start had.
        """
        member = self.members[uid]
        if member.stage is not Stage.POSTED:
            member.epoch, member.among = epoch, among
        member.node, member.bound_at = node, at
        self.put(member, Stage.BOUND)

    def give_up(self, now: float) -> None:
        """Nobody else will come into bind: a start that is not complete is over."""
        self.progress_at = now - self.patience.stuck_s

    def enter(self, fact: Trigger, now: float) -> None:
        """Go on to the phase to which this fact leads."""
        before, self.phase = self.phase, after(self.phase, fact)
        assert self.phase is not before, f"{fact} does not move {before}"
        self.since, self.arrivals_before = now, self.arrivals
        match fact:
            case Trigger.ALL_IN_BIND:
                self._bind_until(now, now)
            case Trigger.LOST_EARLY:
                self._bind_until(self.released_at, now)
            case Trigger.FOUND:
                self._adopt(now)
            case Trigger.STUCK:
                self._again_at = now + self._backoff()
                self.unasked = {m.uid: None for m in self.holding()}
            case Trigger.OVERDUE:
                self._paused_until = now + self._backoff()
            case Trigger.PLAN_INVALIDATED:
                self._upsets += 1
                if self._upsets > self.patience.upsets:
                    self._paused_until = now + self._backoff()
            case Trigger.WHOLE:
                self.shaken = self.bereft = self.preempted = False
                self._upsets = 0
            case Trigger.STRANDED:
                self.preempted = False
            case Trigger.LOST | Trigger.DONE:
                self.tries = 0
            case Trigger.RENEWED | Trigger.UNDONE:
                self._begun, self._made, self.preempted = now, math.inf, False

    def _bind_until(self, released_at: float, now: float) -> None:
        self.released_at, self.due_at = released_at, now + self.patience.gang_bind_timeout_s
        self.ran = self.shaken = False

    def _backoff(self) -> float:
        self.tries += 1
        return self.patience.again_s * 2.0 ** min(self.tries - 1, self.patience.doublings)

    def _adopt(self, now: float) -> None:
        """Take over what others have bound: a start under way, to be whole in time, or a gang that had been running."""
        ours = [m for m in self.at(Stage.BOUND) if m.epoch]
        self.epoch = max([self.epoch, 1, *(m.epoch for m in ours)])
        last = [m for m in ours if m.epoch == self.epoch]
        released = min((now, *(m.bound_at for m in last)))
        self.size = max((m.among for m in last), default=0) or self.count(*PRESENT)
        self.vital, self.started = self.required(*PRESENT), dict(self.roles(*PRESENT))
        self._bind_until(released, released)
        may_have_shrunk = self.terms.lasting_by_role and not self.count(Stage.IDLE)
        if now < self.due_at and not may_have_shrunk:
            return
        if any(m.created <= released for m in self.at(Stage.IDLE)):  # it was there when the others were bound
            self.due_at = now + self.patience.gang_bind_timeout_s
        else:
            self.ran, self.vital = True, self.required(*SETTLED)
