"""One gang: its phase, its current start and its members.

`facts` says when the phase changes, `minimum` how many members the gang needs. Books, plans and writes are the
caller's. `now` is in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from gangfilter.group import GroupKey, Terms
from gangfilter.members import PLACED, PRESENT, SETTLED, Member, Members, Stage
from gangfilter.table import Phase, Trigger, after

P = Phase
NONE: frozenset[str] = frozenset()
BEFORE = (P.ASSEMBLING, P.WAITING, P.FAILED)
"""Phases in which no member has a place."""
STARTED = (P.BINDING, P.RUNNING, P.DEGRADED)
"""Phases after the barrier: a further member is placed by itself."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits of gangs, in seconds."""

    stuck_s: float = 15.0
    """Time without a new member in bind before a start is given up: kube-scheduler's podMaxBackoff and 5 s."""
    hold_s: float = 60.0
    """The longest time that a bind waits: half of the bind timeout."""
    again_s: float = 10.0
    """Pause after a failed start: kube-scheduler's podMaxBackoff."""
    doublings: int = 5
    """How often the pause is doubled if the next start fails too."""
    upsets: int = 32
    """Starts in a row that lost a planned place, after which the gang pauses before the next start too."""
    gang_bind_timeout_s: float = 30.0
    """Time from the first Binding until the gang must be whole, else it is undone."""
    replacement_hold_s: float = 300.0
    """How long the GPUs of a lost member are held for its replacement; 0: not at all."""


class Gang(Members):
    """A group of pods that start together.

    It owns its phase, the times of its current start, and the stages of its members. No member has a place before
    `start`; from then until the phase BINDING the bind of every planned member waits.
    """

    __slots__ = (
        "_again_at", "_begun", "_invalidated", "_made", "_most_in_bind", "_paused_until", "admission_failed",
        "arrivals_before", "began_at", "due_at", "epoch", "key", "member_lost", "origins", "origins_before", "patience",
        "phase", "plan_invalidated", "preempted", "progress_at", "ran", "released_at", "required_at_start", "since",
        "size", "started", "terms", "tries", "unasked",
    )  # fmt: skip

    def __init__(self, key: GroupKey, patience: Patience, now: float) -> None:
        super().__init__()
        self.key, self.patience = key, patience
        self.terms = Terms()
        self.phase = P.ASSEMBLING
        self.since = self._begun = now
        """When the phase began, and when this process first saw the gang in its current life."""
        self._made = math.inf
        """When the first member of this life was created, by the API server's clock."""
        self.epoch = 0
        self.size = 0
        """Members of the last start."""
        self.tries = 0
        """Failed starts in a row."""
        self.plan_invalidated = False
        """A planned place of this start is no longer usable."""
        self._invalidated = 0
        """In how many starts in a row that was so."""
        self.preempted = False
        """All its members are being evicted for other workloads; no member is placed meanwhile."""
        self.unasked: dict[str, None] = {}
        """UIDs of members of a start that got stuck and that kube-scheduler has not tried again since."""
        self.origins = self.origins_before = NONE
        """The workloads whose pods it has since its start, and those before this start; pods of others do not join."""
        self.required_at_start = 0
        self.started: Mapping[str, int] = {}
        """How many members of each role the last start had."""
        self._most_in_bind = 0
        """The most members of this start that were in bind at the same time."""
        self.began_at: float | None = None
        """When the first member of this start came into bind."""
        self.progress_at = 0.0
        """When `_most_in_bind` grew last."""
        self.released_at = self.due_at = 0.0
        """When the Bindings began, and when all must be bound."""
        self.arrivals_before = 0
        """`arrivals` when the phase began."""
        self._paused_until = self._again_at = 0.0
        """The gang starts after the first; and after the second, or when kube-scheduler has tried all `unasked`."""
        self.ran = False
        """BINDING: it ran before, as far as this process can know."""
        self.admission_failed = self.member_lost = False
        """Since the gang was whole: a kubelet refused a member; a bound member was lost."""

    def may_plan(self, now: float) -> bool:
        """Whether the gang waits for capacity alone."""
        asked = now >= self._again_at or self.unasked.keys().isdisjoint(self.members)
        return self.phase is P.WAITING and now >= self._paused_until and asked

    @property
    def timed(self) -> bool:
        """Whether time alone may change its phase."""
        return self.moves_at < math.inf

    @property
    def born(self) -> float:
        """When its current life began."""
        return min(self._begun, self._made)

    def shift(self, by: float) -> None:
        """The wall clock was set: all times of the API server were `by` seconds earlier than they seemed."""
        self._made -= by
        for member in self.members.values():
            member.created -= by
            member.bound_at -= by

    @property
    def moves_at(self) -> float:
        """When time alone may change its phase: at any moment, at its schedule timeout, or never."""
        if self.phase in (P.STARTING, P.BINDING):
            return -math.inf
        limit = self.terms.schedule_timeout_s if self.phase in (P.ASSEMBLING, P.WAITING) else None
        return self.born + limit if limit and self.members else math.inf

    # -- events

    def join(self, member: Member, now: float) -> None:
        """Take in a new member; it does not count until it is put to a stage."""
        if not self.members and not self._past:
            self._begun, self._made = now, math.inf
        self._made = min(self._made, member.created)
        self.put(member, Stage.ABSENT)

    def put(self, member: Member, stage: Stage) -> None:
        if member.stage is Stage.BOUND and stage is Stage.ABSENT:
            self.member_lost = True
        super().put(member, stage)

    def lose(self, uid: str, *, refused: bool = False) -> None:
        """Forget a lost member; `refused`: its kubelet refused it before it ran."""
        member = self.members.get(uid)
        if member is not None:
            self.member_lost = self.member_lost or member.stage is Stage.BOUND
            self.admission_failed = self.admission_failed or refused
            self.remove(uid)

    def start(self, places: Mapping[str, str], now: float) -> None:
        """Begin a start: `places` (member → node) are held."""
        self.epoch += 1
        self.began_at, self.progress_at, self._most_in_bind = None, now, 0
        for uid, node in places.items():
            member = self.members[uid]
            member.node = node
            self.put(member, Stage.PLANNED)
        self.size, self.started = self.count(*PLACED), dict(self.roles(*PLACED))
        self.required_at_start = self.required(*PLACED)
        self.origins_before, self.origins = (
            self.origins,
            NONE.union(*{m.origins for m in self.members.values() if m.stage in PRESENT}),
        )
        self.unasked.clear()
        self.plan_invalidated = False
        self.enter(Trigger.PLANNED, now)

    def arrive(self, uid: str, now: float) -> None:
        """A planned member is in bind."""
        member = self.members[uid]
        if member.stage is not Stage.PLANNED:
            return
        self.put(member, Stage.IN_BIND)
        self.began_at = now if self.began_at is None else self.began_at
        if self.count(Stage.IN_BIND) > self._most_in_bind:
            self._most_in_bind, self.progress_at = self.count(Stage.IN_BIND), now

    def admits(self, member: Member) -> bool:
        """Whether a pod of this member's workloads may join it now."""
        return not self.origins or not self.origins.isdisjoint(member.origins)

    def leave(self, uid: str) -> None:
        """kube-scheduler has abandoned the bind of a member."""
        member = self.members.get(uid)
        if member is not None and member.stage is Stage.IN_BIND:
            self.put(member, Stage.PLANNED)

    def post(self, uid: str, node: str) -> None:
        """The member's Binding is being written."""
        member = self.members[uid]
        member.node, member.epoch = node, self.epoch
        self.put(member, Stage.POSTED)

    def bound(self, uid: str, node: str, epoch: int, at: float, start_size: int = 0) -> None:
        """The member is bound since `at`, by the start `epoch` with `start_size` members; 0 if by no start of ours."""
        member = self.members[uid]
        if member.stage is not Stage.POSTED:
            member.epoch, member.start_size = epoch, start_size
        member.node, member.bound_at = node, at
        self.put(member, Stage.BOUND)

    def give_up(self, now: float) -> None:
        """End a start whose members are not all in bind."""
        self.progress_at = now - self.patience.stuck_s

    def enter(self, trigger: Trigger, now: float) -> None:
        """Enter the phase to which this trigger leads."""
        before, self.phase = self.phase, after(self.phase, trigger)
        assert self.phase is not before, f"{trigger} does not move {before}"
        self.since, self.arrivals_before = now, self.arrivals
        if trigger in (Trigger.STUCK, Trigger.PLAN_INVALIDATED):
            self.origins = self.origins_before
        elif trigger in (Trigger.DONE, Trigger.LIMIT):
            self.origins = NONE
        match trigger:
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
                self._invalidated += 1
                if self._invalidated > self.patience.upsets:
                    self._paused_until = now + self._backoff()
            case Trigger.WHOLE:
                self.admission_failed = self.member_lost = self.preempted = False
                self._invalidated = 0
            case Trigger.STRANDED:
                self.preempted = False
            case Trigger.LOST | Trigger.DONE:
                self.tries = 0
            case Trigger.RENEWED | Trigger.UNDONE:
                self._begun, self._made, self.preempted = now, math.inf, False

    def _bind_until(self, released_at: float, now: float) -> None:
        self.released_at, self.due_at = released_at, now + self.patience.gang_bind_timeout_s
        self.ran = self.admission_failed = False

    def _backoff(self) -> float:
        self.tries += 1
        return self.patience.again_s * 2.0 ** min(self.tries - 1, self.patience.doublings)

    def _adopt(self, now: float) -> None:
        """Take over bound members: of a start in progress, which must be whole in time, or of a gang that ran."""
        ours = [m for m in self.at(Stage.BOUND) if m.epoch]
        self.epoch = max([self.epoch, 1, *(m.epoch for m in ours)])
        last = [m for m in ours if m.epoch == self.epoch]
        released = min((now, *(m.bound_at for m in last)))
        self.size = max((m.start_size for m in last), default=0) or self.count(*PRESENT)
        self.required_at_start, self.started = self.required(*PRESENT), dict(self.roles(*PRESENT))
        there = [m for m in self.members.values() if m.stage in PRESENT]
        self.origins = NONE.union(*{m.origins for m in there if m.stage in SETTLED or m.created <= released})
        self._bind_until(released, released)
        may_have_shrunk = self.terms.lasting_by_role and not self.count(Stage.IDLE)
        if now < self.due_at and not may_have_shrunk:
            return
        if any(m.created <= released for m in self.at(Stage.IDLE)):  # it existed when the others were bound
            self.due_at = now + self.patience.gang_bind_timeout_s
        else:
            self.ran, self.required_at_start = True, self.required(*SETTLED)
