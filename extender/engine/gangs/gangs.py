"""Gangs in the books: what the world tells of their members, and what becomes of members in bind.

Where a gang stands is `gangfilter.gang`'s, what follows from that `conductor`'s. What a start holds is booked by
`starts` for all its members at once. What kube-scheduler is told of a member is in `barrier`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from extender.engine import refusals
from extender.engine.books.ledger import Ledger, PodState
from extender.engine.effects import BindAnswer, Effect, Held
from extender.engine.gangs.conductor import Conductor, Release
from extender.engine.gangs.herald import Herald
from extender.engine.gangs.roster import Known, Roster
from extender.engine.gangs.starts import Starts
from extender.engine.planning import intree
from extender.engine.planning.plan import Placement
from extender.engine.planning.seats import Spot
from extender.engine.settings import Settings
from gangfilter import dialects
from gangfilter.gang import STARTED, Gang
from gangfilter.group import Declaration, GroupKey
from gangfilter.members import ON_NODE, Member, Stage
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.reason import Reason

PREEMPTED = "PreemptionByScheduler"
"""Reason of a pod's condition DisruptionTarget. Source: KEP-3329."""
MOST_EPOCHS = 2**53
"""Nobody starts so often: a number like this was made up, and the next ones could not be written."""


class Gangs:
    """All gangs."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        counters: Counter[tuple[str, str]],
        starts: Starts,
        release: Release,
        unpromise: Callable[[PodState], None],
        wall: float,
    ) -> None:
        """`unpromise` takes back what a pod was promised, or waits for, as a single one.

        `wall` is what the wall clock showed (s since 1970) when the monotonic clock showed zero.
        """
        self._ledger, self._settings, self.starts = ledger, settings, starts
        self.waiting = False
        """Gangs wait for room, as far as was seen at the last tick."""
        self.looked = 0
        """How often there may have been room by then: those who wait are in line for a plan with that."""
        self._roster, self._herald = Roster(settings.patience, wall), Herald()
        self._conductor = Conductor(ledger, settings, counters, self._roster, self._herald, release, unpromise, starts)

    @property
    def known(self) -> dict[GroupKey, Known]:
        return self._roster.known

    def of(self, uid: str) -> Known | None:
        """The gang of a pod, None if it is in none."""
        return self._roster.of(uid)

    def effects(self) -> list[Effect]:
        """What is to be done, told once."""
        return self._herald.taken()

    # -- the world

    def see(self, pod: Pod, state: PodState | None, now: float) -> None:
        """Take in a pod; `state` is None when it is over."""
        said = dialects.membership(pod)
        uid = pod.metadata.uid
        known = self.of(uid)
        if known is not None and (said is None or said.key != known.gang.key):
            self.forget(uid, now)
            known = None
        if said is None or (known is None and state is None and not _has_succeeded(pod)):
            return
        if known is None:
            known = self._roster.join(pod, said, now)
        self._roster.say(uid, said.said)
        self._tell_conflicts(known, now)
        self._restage(known, pod, state, now)
        self._conductor.settle(known, now)

    def declare(self, kind: str, key: GroupKey, declaration: Declaration | None, now: float) -> None:
        """A PodGroup says this, or (None) is gone."""
        known = self._roster.gang(key, now)
        if declaration is None:
            known.declared.pop(kind, None)
        else:
            known.declared[kind] = declaration
        known.told = None
        self._roster.agree(known)
        self._tell_conflicts(known, now)
        self._conductor.settle(known, now)

    def _tell_conflicts(self, known: Known, now: float) -> None:
        """Once there is a pod to tell it of: a PodGroup is mostly there before."""
        conflicts = known.gang.terms.conflicts
        if conflicts == known.warned:
            return
        reason = refusals.gang_conflict(known.gang.key, "; ".join(conflicts))
        if not conflicts or self._herald.report(known, reason, now):
            known.warned = conflicts

    def _restage(self, known: Known, pod: Pod, state: PodState | None, now: float) -> None:
        member = known.gang.members[pod.metadata.uid]
        if state is None:
            self._over(known, pod, member, now)
        elif pod.spec.node_name:
            self._on_node(known.gang, member, pod, state, now)
        elif self._counts(pod, state):
            self._waits(known, member, pod, now)
        else:
            self._conductor.leave(known.gang, member, refusals.GONE)
            known.gang.put(member, Stage.ABSENT)

    def _over(self, known: Known, pod: Pod, member: Member, now: float) -> None:
        """The pod has ended, or goes before it had a node."""
        if _has_succeeded(pod):
            known.gang.succeed(member.uid)
            self.starts.settled(member.uid)
        elif member.stage is not Stage.SUCCEEDED:
            failed = pod.status.phase == "Failed"
            known.failed += failed
            self._drop(known, member, now, refused=failed and not pod.status.container_statuses)

    def _on_node(self, gang: Gang, member: Member, pod: Pod, state: PodState, now: float) -> None:
        node = pod.spec.node_name or ""
        if member.stage is Stage.IN_BIND:
            self._conductor.leave(gang, member, refusals.ELSEWHERE)
        self.starts.settled(member.uid)
        if pod.metadata.deletion_timestamp:
            preempted = any(c.status == "True" and c.reason == PREEMPTED for c in pod.status.conditions)
            member.yields = member.yields or preempted
            gang.put(member, Stage.ABSENT)
        elif member.stage not in (Stage.BOUND, Stage.LEAVING):
            group = state.allocation.group if state.allocation else None
            epoch, among = (group.epoch, group.size) if group and group.key == str(gang.key) else (0, 0)
            epoch, among = (epoch, among) if max(epoch, among) < MOST_EPOCHS else (0, 0)
            times = [c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled"]
            gang.bound(member.uid, node, epoch, self._roster.clock(times[0] if times else None, now), among)

    def _counts(self, pod: Pod, state: PodState) -> bool:
        gated = any(gate.name != names.PLAN_GATE for gate in pod.spec.scheduling_gates)
        return self._fit(pod, state) and not gated and not pod.metadata.deletion_timestamp

    def _fit(self, pod: Pod, state: PodState) -> bool:
        ours = not self._settings.schedulers or pod.spec.scheduler_name in self._settings.schedulers
        return ours and not isinstance(state.asked, Reason) and not state.forged

    def awaits(self, pod: Pod, state: PodState) -> bool:
        """Whether the pod may wait for its gang behind our scheduling gate: it is, or will be, one that counts."""
        return self.of(pod.metadata.uid) is not None and self._fit(pod, state)

    def _waits(self, known: Known, member: Member, pod: Pod, now: float) -> None:
        """The pod has no node yet."""
        gang = known.gang
        if self.starts.learn(member.uid, intree.constraints(pod)):
            known.planned = None
        if member.stage is Stage.ABSENT:
            refused = any(c.type == "PodScheduled" and c.status == "False" for c in pod.status.conditions)
            member.refused = refused or bool(pod.spec.scheduling_gates)
            gang.put(member, Stage.IDLE)
            if gang.phase in STARTED:
                self._conductor.refill(known, now, member)
                self._conductor.wake(gang, member)
        elif not self.starts.sound(member.uid):
            self._conductor.misplaced(gang, member)

    def forget(self, uid: str, now: float) -> None:
        """The pod is gone. What a member has done stays done."""
        known = self.of(uid)
        if known is None:
            return
        if known.gang.vanish(uid):
            self._roster.quit(uid)
            self.starts.forget(uid)
        else:
            self._drop(known, known.gang.members[uid], now)
        self._conductor.settle(known, now)

    def _drop(self, known: Known, member: Member, now: float, *, refused: bool = False) -> None:
        self._conductor.leave(known.gang, member, refusals.GONE)
        known.gang.lose(member.uid, refused=refused)
        self._roster.quit(member.uid)
        self.starts.forget(member.uid)
        pod = self._ledger.pods.get(member.uid)
        if pod is not None and not refused:
            self._conductor.slots.keep(known, member, pod, now)

    def look_at(self, node: str, now: float) -> None:
        """The node changed or is gone: places held there may be none any more."""
        for uid in sorted(self._ledger.on_node.get(node, ())):
            known, kept_for = self.of(uid), self._conductor.slots.of(uid)
            if known is not None:
                self.recheck(known, known.gang.members[uid], now)
            elif kept_for is not None:
                self._conductor.slots.check(uid)
                self._conductor.settle(kept_for, now)

    def recheck(self, known: Known, member: Member, now: float) -> None:
        """See whether the place held for a member, if there is one, still is one."""
        if not self.starts.sound(member.uid):
            self._conductor.misplaced(known.gang, member)
            self._conductor.settle(known, now)

    def refill(self, known: Known, member: Member, now: float) -> None:
        """A member that comes for a lost one gets what was kept of that."""
        self._conductor.refill(known, now, member)

    def unhold(self, known: Known, member: Member) -> None:
        """kube-scheduler will bind this member by itself. Others like it may have waited for that to be known."""
        if member.uid not in known.gang.unheld:
            known.gang.unheld.add(member.uid)
            self._conductor.call(known.gang)

    def beside(self, uid: str) -> list[str]:
        """The nodes of the members of a pod's gang that have one, a name for each."""
        known = self.of(uid)
        return [m.node for m in known.gang.at(*ON_NODE)] if known is not None else []

    def refused(self, uid: str) -> None:
        """Such a member was refused before anybody knew where it may go."""
        known = self.of(uid)
        if known is not None:
            known.gang.members[uid].refused = True
            self.unhold(known, known.gang.members[uid])

    # -- binds

    def arrive(self, known: Known, member: Member, now: float) -> BindAnswer:
        """A member with a place is in bind: it waits for the others, or goes through once the gang has started."""
        gang = known.gang
        if gang.phase in STARTED:
            return self._conductor.post(gang, member)
        gang.arrive(member.uid, now)
        self._conductor.settle(known, now)
        return Held()

    def left(self, uid: str) -> None:
        """Nobody waits for the pod's bind any more."""
        known = self.of(uid)
        if known is not None:
            known.gang.leave(uid)

    def posted(self, uid: str, node: str, now: float) -> Gang | None:
        """The Binding of a member that had no place held is being written; returns its gang."""
        known = self.of(uid)
        if known is None:
            return None
        known.gang.post(uid, node)
        self._conductor.refill(known, now)
        return known.gang

    def bind_done(self, uid: str, bound: bool, now: float) -> None:
        """How the Binding of a member went. One that did not happen is tried again at its place."""
        known = self.of(uid)
        if known is None or known.gang.members[uid].stage is not Stage.POSTED:
            return
        gang, member = known.gang, known.gang.members[uid]
        if bound:
            gang.bound(uid, member.node, member.epoch, now)
            self.starts.settled(uid)
        elif gang.phase is Phase.BINDING and self._conductor.leading and self.starts.hold_again(uid):
            gang.put(member, Stage.PLANNED)
        else:
            self._conductor.leave(gang, member, refusals.GONE)
            gang.put(member, Stage.IDLE)
        self._conductor.settle(known, now)

    def exclude(self, known: Known, member: Member, now: float) -> None:
        """kube-scheduler itself keeps the member off its node: it is planned anew without it."""
        self.starts.exclude(member.uid, member.node)
        self._conductor.misplaced(known.gang, member)
        self._conductor.settle(known, now)

    # -- time and plans

    def replayed(self, now: float) -> None:
        """All pods and groups were told."""
        self._conductor.replayed = True
        for known in list(self.known.values()):
            self._conductor.settle(known, now)

    def lead(self, yes: bool, now: float) -> None:
        """Whether this process may write."""
        self._conductor.leading = yes
        for known in list(self.known.values()):
            if not yes:
                self._conductor.stand_by(known, now)
            known.told, known.planned, known.reported, known.warned = None, None, (None, 0.0), ()
            known.offering = True
            self._tell_conflicts(known, now)
            self._conductor.settle(known, now)

    def tick(self, now: float) -> None:
        """Let time pass."""
        self._conductor.unpark()
        self.waiting = False
        for known in list(self.known.values()):
            if not known.parked and (known.gang.phase is not Phase.RUNNING or known.slots):
                self._conductor.tick(known, now)
                self._herald.news(known, now)
                self._conductor.park(known)
                self.waiting |= known.gang.phase is Phase.WAITING and not known.parked
        self.looked = self._ledger.freed

    @property
    def leading(self) -> bool:
        """Whether gangs are led here, with all of the cluster known."""
        return self._conductor.leading and self._conductor.replayed

    def may_start(self, key: GroupKey, now: float) -> bool:
        """Whether a gang waits for nothing but room on nodes, and may start here."""
        gang = self.known[key].gang
        return self.leading and gang.may_plan(now) and self.starts.withheld(gang) is None

    def suffice(self, key: GroupKey, uids: Collection[str]) -> bool:
        """Whether a smallest start of a gang that waits needs nobody but these members."""
        return all(seat.uid in uids for seat in self.starts.asked(self.known[key].gang, uids)[1])

    def start(self, key: GroupKey, spots: Mapping[str, Spot], now: float) -> None:
        """Have the gang start at places that were kept for it."""
        self.starts.unwant(self.known[key].gang)
        self._conductor.take(self.known[key], Placement(spots), now)

    def leaving(self) -> Iterator[str]:
        """UIDs of bound members whose eviction was asked for."""
        for known in self.known.values():
            if known.gang.count(Stage.LEAVING):
                yield from (member.uid for member in known.gang.at(Stage.LEAVING))

    def preempt(self, uid: str, now: float, *, wholly: bool) -> None:
        """The room of a member is taken for others: nothing is kept of it; `wholly`: all of its gang goes."""
        known = self.of(uid)
        if known is not None:
            known.gang.members[uid].yields = True
            if wholly and not known.gang.preempted:
                self._conductor.preempt(known, now)

    def grow(self, key: GroupKey, model: PodState, role: str, spots: Collection[Spot], now: float) -> None:
        """Keep these places for members to come of a gang that runs; `model` asks what they will."""
        known = self.known[key]
        self._conductor.slots.grow(known, model, role, spots, now)
        self._conductor.refill(known, now)

    def growing(self) -> set[GroupKey]:
        """The gangs for which such places are kept."""
        return self._conductor.slots.growing()

    def shed(self, key: GroupKey, now: float) -> None:
        """Nobody comes for such places any more."""
        known = self.known[key]
        for slot in [slot for slot in known.slots if slot.grown]:
            self._conductor.slots.drop(known, slot)
        self._conductor.settle(known, now)

    def spare(self, key: GroupKey, now: float) -> None:
        """The rest of the gang is not taken after all."""
        if key in self.known:
            self._conductor.spare(self.known[key], now)

    def work(self, now: float) -> bool:
        """Do a slice of planning; returns whether there is more to do."""
        came = self.starts.advance(now)
        if came is not None:
            gang, outcome = came
            self._conductor.take(self.known[gang.key], outcome, now)
        return not self.starts.idle


def _has_succeeded(pod: Pod) -> bool:
    """Whether the pod has done its work, rather than ended since it was told to go."""
    return pod.status.phase == "Succeeded" and bool(pod.spec.node_name) and not pod.metadata.deletion_timestamp
