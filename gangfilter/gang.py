"""One gang: how it goes from phase to phase.

Only decisions: what the facts are and what follows. Books, plans and writes are its owner's; `now` is in seconds of a
monotonic clock. A gang holds nothing until `start`; between `start` and its phase BINDING every planned member's bind
is kept waiting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from gangfilter.group import GroupKey, Terms
from gangfilter.members import ARRIVED, OPEN, PLACED, PRESENT, SETTLED, Member, Members, Stage
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
    """A group of pods that start together."""

    __slots__ = (
        "_again_at", "_arrivals_before", "_began_at", "_begun", "_bereft", "_due_at", "_made", "_most",
        "_paused_until", "_progress_at", "_ran", "_released_at", "_shaken", "_started", "_upsets", "_vital",
        "epoch", "key", "patience", "phase", "preempted", "since", "size", "terms", "tries", "unasked", "upset",
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
        self._vital = 0
        """How many required members the last start had."""
        self._started: Mapping[str, int] = {}
        """How many of each role it had."""
        self._most = 0
        """How many of this start were in bind at the same time."""
        self._began_at: float | None = None
        """When the first member of this start came into bind."""
        self._progress_at = 0.0
        """When there were last more of them in bind than ever."""
        self._released_at = self._due_at = 0.0
        """When the Bindings began, and until when all must be bound."""
        self._arrivals_before = 0
        """How many members had come when the phase began."""
        self._paused_until = self._again_at = 0.0
        """No start before the one, nor before the other unless all have asked again."""
        self._ran = False
        """BINDING: it had been running, as far as can be known."""
        self._shaken = self._bereft = False
        """Since it was whole: a kubelet refused a member; a bound one was lost."""

    @property
    def bereft(self) -> bool:
        """Whether a bound member was lost since it was whole."""
        return self._bereft

    # -- the minimum

    @property
    def minimum(self) -> tuple[int | None, Mapping[str, int]]:
        """How many members there have to be, in all and by role; None if nobody says so.

        One that has started may need fewer than to start.
        """
        total, roles, lasting = self.terms.min_member, dict(self.terms.min_by_role), dict(self.terms.lasting_by_role)
        has_run = self.phase in (P.RUNNING, P.DEGRADED) or (self.phase is P.BINDING and self._ran)
        if total is None or not lasting or not has_run:
            return total, roles
        return total - sum(roles.get(role, 0) - least for role, least in lasting.items()), roles | lasting

    def suffices(self, *stages: Stage, also: Sequence[Member] = ()) -> bool:
        """Whether the members at these stages are the minimum: in number, by role, and with all that are required.

        `also` counts too; none of them is at these stages.

        Required are those that exist; once started, as many as the start had.
        """
        least, by_role = self.minimum
        if least is None or self.count(*stages) + len(also) < least:
            return False
        roles = self.roles(*stages)
        roles.update(member.role for member in also)
        if any(roles[role] < of_role for role, of_role in by_role.items()):
            return False
        vital = self.required(*PRESENT) if self.phase in (*BEFORE, P.STARTING) else self._vital
        return self.required(*stages) + sum(member.required for member in also) >= vital

    def last(self) -> list[Member]:
        """The planned members that kube-scheduler binds by itself, once nobody is missing but them."""
        if self.phase not in (*STARTED, P.STARTING):
            return []
        planned = [m for uid in sorted(self.unheld) if (m := self.members[uid]).stage is Stage.PLANNED]
        return planned if self.phase in STARTED or self.suffices(*ARRIVED, also=planned) else []

    @property
    def least(self) -> int:
        """How many members start together at least, 0 if nobody says so."""
        return max(self.terms.min_member or 0, sum(of_role for _, of_role in self.terms.min_by_role))

    def lacking(self) -> str:
        """Which part of the minimum does not exist, in words; "" if it does."""
        least = self.terms.min_member
        if least is None:
            return "its number of members is unknown"
        roles = self.roles(*PRESENT)
        if roles.total() < least:
            leader = self._leader_to_come(least - roles.total())
            hint = f"; the {leader} does not: one that is made when the others run must not be in the minimum"
            return f"{roles.total()} of {least} members exist{hint if leader else ''}"
        return ", ".join(f"{roles[role]} of {n} {role} exist" for role, n in self.terms.min_by_role if roles[role] < n)

    def _leader_to_come(self, missing: int) -> str:
        """The role of the one member that is missing, if it may be waiting for the others; else ""."""
        if missing != 1:
            return ""
        leaders = {m.leader for m in self.members.values() if m.leader}
        return next((leader for leader in sorted(leaders) if not self.roles(*PRESENT)[leader]), "")

    def needs(self, role: str, required: bool, beside: Mapping[tuple[str, bool], int]) -> bool:
        """Whether, once started, it is short of one more such member, beside those that have a place.

        `beside`: how many shall be counted too, by role and by whether they are required.
        """
        placed = (*PLACED, Stage.POSTED)
        there = self.roles(*placed)
        for (other, _), n in beside.items():
            there[other] += n
        if required and self.required(*placed) + sum(n for (_, vital), n in beside.items() if vital) < self._vital:
            return True
        least, by_role = self.minimum
        return there.total() < (least or 0) or there[role] < by_role.get(role, 0)

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
            self._bereft = True
        super().put(member, stage)

    def lose(self, uid: str, *, refused: bool = False) -> None:
        """A member is gone for good; `refused` by its kubelet, before it ran."""
        member = self.members.get(uid)
        if member is not None:
            self._bereft = self._bereft or member.stage is Stage.BOUND
            self._shaken = self._shaken or refused
            self.remove(uid)

    def start(self, places: Mapping[str, str], now: float) -> None:
        """Everybody in `places` (member → node) has one held from now on."""
        self.epoch += 1
        self._began_at, self._progress_at, self._most = None, now, 0
        for uid, node in places.items():
            member = self.members[uid]
            member.node = node
            self.put(member, Stage.PLANNED)
        self.size, self._vital, self._started = self.count(*PLACED), self.required(*PLACED), dict(self.roles(*PLACED))
        self.unasked.clear()
        self.upset = False
        self._enter(Trigger.PLANNED, now)

    def arrive(self, uid: str, now: float) -> None:
        """A planned member is in bind."""
        member = self.members[uid]
        if member.stage is not Stage.PLANNED:
            return
        self.put(member, Stage.IN_BIND)
        self._began_at = now if self._began_at is None else self._began_at
        if self.count(Stage.IN_BIND) > self._most:
            self._most, self._progress_at = self.count(Stage.IN_BIND), now

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
        self._progress_at = now - self.patience.stuck_s

    def step(self, now: float) -> tuple[Phase, Trigger] | None:
        """Go on by one phase if the facts say so; returns the phase left and why, None if it stays."""
        if self.phase in BEFORE:
            self.recall()
        fact = self._fact(now)
        if fact is None:
            return None
        left = self.phase
        self._enter(fact, now)
        return left, fact

    def _enter(self, fact: Trigger, now: float) -> None:
        before, self.phase = self.phase, after(self.phase, fact)
        assert self.phase is not before, f"{fact} does not move {before}"
        self.since, self._arrivals_before = now, self.arrivals
        match fact:
            case Trigger.ALL_IN_BIND:
                self._bind_until(now, now)
            case Trigger.LOST_EARLY:
                self._bind_until(self._released_at, now)
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
                self._shaken = self._bereft = self.preempted = False
                self._upsets = 0
            case Trigger.STRANDED:
                self.preempted = False
            case Trigger.LOST | Trigger.DONE:
                self.tries = 0
            case Trigger.RENEWED | Trigger.UNDONE:
                self._begun, self._made, self.preempted = now, math.inf, False

    def _bind_until(self, released_at: float, now: float) -> None:
        self._released_at, self._due_at = released_at, now + self.patience.gang_bind_timeout_s
        self._ran = self._shaken = False

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
        self._vital, self._started = self.required(*PRESENT), dict(self.roles(*PRESENT))
        self._bind_until(released, released)
        may_have_shrunk = self.terms.lasting_by_role and not self.count(Stage.IDLE)
        if now < self._due_at and not may_have_shrunk:
            return
        if any(m.created <= released for m in self.at(Stage.IDLE)):  # it was there when the others were bound
            self._due_at = now + self.patience.gang_bind_timeout_s
        else:
            self._ran, self._vital = True, self.required(*SETTLED)

    # -- facts

    def _fact(self, now: float) -> Trigger | None:
        match self.phase:
            case P.ASSEMBLING | P.WAITING:
                return self._before_start(now)
            case P.STARTING:
                return self._while_starting(now)
            case P.BINDING:
                return self._while_binding(now)
            case P.RUNNING | P.DEGRADED:
                return self._while_running(now)
            case P.UNDOING:
                return self._while_undoing()
            case P.COMPLETED | P.FAILED:
                return self._at_the_end()

    def _found(self) -> bool:
        """Whether members are bound by a start that this gang did not make, or all are, by whomever."""
        if not self.count(Stage.BOUND):
            return False
        return any(m.epoch for m in self.at(Stage.BOUND)) or self.suffices(*SETTLED)

    def _before_start(self, now: float) -> Trigger | None:
        if self._found():
            return Trigger.FOUND
        if self.phase is P.ASSEMBLING and self._done():
            return Trigger.DONE
        complete = self.suffices(*PRESENT)
        if complete != (self.phase is P.WAITING):
            return Trigger.COMPLETE if complete else Trigger.INCOMPLETE
        limit = self.terms.schedule_timeout_s
        return Trigger.LIMIT if limit and self.members and now >= self.born + limit else None

    def _while_starting(self, now: float) -> Trigger | None:
        if self.upset or not self.suffices(*PLACED):
            return Trigger.PLAN_INVALIDATED
        if self.suffices(*ARRIVED):
            return Trigger.ALL_IN_BIND
        if self._found():
            return Trigger.FOUND
        held_too_long = self._began_at is not None and now >= self._began_at + self.patience.hold_s
        return Trigger.STUCK if held_too_long or now >= self._progress_at + self.patience.stuck_s else None

    def _while_binding(self, now: float) -> Trigger | None:
        if self.suffices(*SETTLED):
            return Trigger.WHOLE
        if not self.count(Stage.PLANNED, Stage.IN_BIND, Stage.POSTED, Stage.BOUND):
            return Trigger.UNDONE
        if self._ran:
            return Trigger.LOST
        if now < self._due_at:
            return None
        if self.minimum[0] is not None:
            return Trigger.OVERDUE
        return Trigger.LOST if self.count(*SETTLED) >= self.size else None  # nobody is taken back that may be whole

    def _while_running(self, now: float) -> Trigger | None:
        if self._done():
            return Trigger.DONE
        if self.preempted:
            return Trigger.PREEMPTED
        if self.suffices(*SETTLED):
            return Trigger.WHOLE if self.phase is P.DEGRADED else None
        if self.phase is P.RUNNING:
            early = self._shaken and now < self._released_at + self.patience.gang_bind_timeout_s
            return Trigger.LOST_EARLY if early else Trigger.LOST
        if not self.count(Stage.BOUND, Stage.POSTED):
            return Trigger.UNDONE
        anew = self._bereft and self.terms.on_member_lost == "restart"
        return Trigger.RESTART if anew and all(m.removable for m in self.at(Stage.BOUND)) else None

    def _while_undoing(self) -> Trigger | None:
        if self.suffices(*SETTLED):
            return Trigger.WHOLE
        if self.count(Stage.POSTED, Stage.EVICTING):
            return None
        bound = self.at(Stage.BOUND)
        if not bound:
            return Trigger.UNDONE
        return None if any(m.removable for m in bound) and not self.preempted else Trigger.STRANDED

    def _at_the_end(self) -> Trigger | None:
        if self.phase is P.FAILED and self._found():
            return Trigger.FOUND
        if self.count(Stage.POSTED, Stage.BOUND) and self.phase is P.COMPLETED:
            return None
        return Trigger.RENEWED if self.arrivals > self._arrivals_before and self.count(Stage.IDLE) else None

    def _done(self) -> bool:
        """All have succeeded, or those whose success ends it.

        An operator may delete the PodGroup of a job that is done, and leave its pods: then nobody says the minimum.
        """
        unsaid = self.minimum[0] is None and self.count(Stage.SUCCEEDED) > 0
        if not self.count(*OPEN) and (unsaid or self.suffices(Stage.SUCCEEDED)):
            return True
        ends = self.terms.on_completion
        if not ends or self.roles(*OPEN)[ends]:
            return False
        return self.roles(Stage.SUCCEEDED)[ends] >= max(1, self._ending(ends))

    def _ending(self, role: str) -> int:
        """How many of a role have to succeed for it: as many as it started with, without those that it can spare.

        One that is lost is made anew a moment later, and the others wait for it.
        """
        if self.terms.on_member_lost == "ignore":
            return 0
        there, (least, by_role) = self.roles(*PLACED, Stage.POSTED), self.minimum
        others = there.total() - there[role]
        return max(by_role.get(role, 0), min(self._started.get(role, 0), (least or 0) - others))
