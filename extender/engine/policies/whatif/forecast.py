"""What would become of workloads, one after the other, on copies: the steps that the engine itself would take."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

import msgspec

from extender.engine.planning.attempt import LOOK, PIECE, STEP, batched, dissolve
from extender.engine.planning.one_model import Mixture
from extender.engine.planning.plan import Failure, Placement, Plan
from extender.engine.planning.shortage import Shortage
from extender.engine.planning.solver import Wanted
from extender.engine.planning.trial import KEPT
from extender.engine.policies.backfill.backfill import Backfill
from extender.engine.policies.backfill.heads import Rank
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.preemption.attempt import Preemptor
from extender.engine.policies.preemption.preempt import Preemption
from extender.engine.policies.preemption.victims import NoSolution, Victims
from extender.engine.policies.whatif.question import Outcome, Workload
from extender.engine.policies.whatif.sandbox import TAKEN, Sandbox, may_fit_empty, twin
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.quota import Quota
from extender.engine.state.node_state import NodeState
from extender.engine.state.seats import Assignment, Seat
from extender.engine.types import refusals
from protos.contract.reason import Reason

PREEMPTS = (*refusals.FOR_ROOM, *refusals.GANG_SHORT, *refusals.QUEUE_SHORT)
"""Codes of workloads that may preempt others."""
FOR_ROOM = (*refusals.FOR_ROOM, *refusals.GANG_SHORT)
"""Codes of workloads that start once others have ended."""

NO_CPU = Reason(refusals.NO_ROOM, "no node has the requested CPU and memory free")
"""Of a pod that requests no GPU."""


class Policies(msgspec.Struct, frozen=True):
    """What the engine would ask about the workloads if they existed."""

    context: PolicyContext
    backfill: Backfill
    preemption: Preemption


class Forecast:
    """One pass over the workloads of a question. Each takes its place before the next one is looked at.

    A workload that does not start now takes nothing.
    """

    def __init__(self, policies: Policies, more: Sequence[NodeState], now: float) -> None:
        """`more`: nodes that there would be besides; with them nothing is evicted."""
        self._context, self._backfill, self._preemption = policies.context, policies.backfill, policies.preemption
        self._more, self._now = more, now
        self._sandbox = Sandbox(self._context.gangs.planner.view)
        self._queues: Queues
        self._gone: set[str] = set()
        """The victims (UIDs) so far."""
        self._waiting: list[Workload] = []
        """The workloads so far that do not start now."""

    def outcomes(self, workloads: Sequence[Workload]) -> Generator[int, None, list[Outcome]]:
        yield from self._sandbox.fill(self._more)
        self._queues = yield from twin(self._context.tenancy.queues, self._more)
        for workload in workloads:
            yield from self._count(workload, placed=False)
        yield PIECE
        self._queues.reckon(self._queues.also)
        yield PIECE
        found: list[Outcome] = []
        in_vain: dict[object, Outcome] = {}
        for workload in workloads:
            kind = _kind(workload)
            known = in_vain.get(kind)
            if known is not None:
                outcome = _behind(known, workload)
                yield LOOK
            else:
                outcome = yield from self._outcome(workload)
            if outcome.state not in ("now", "preempts"):
                outcome = outcome if known is not None else (yield from self._in_line(outcome))
                in_vain[kind] = outcome
                self._waiting.append(workload)
            found.append(outcome)
        yield from dissolve(self._queues.pods, LOOK)
        del self._queues
        yield PIECE
        yield from self._sandbox.dissolve()
        return found

    def _count(self, workload: Workload, *, placed: bool) -> Iterator[int]:
        """Count its pods in their queue."""
        counted = (pod for pod in workload.pods.values() if pod.info.ours or pod.ask is not None)
        for pods in batched(counted):
            for pod in pods:
                takes = self._context.tenancy.usage.of(pod, pod.gpu_class)
                asks = bool(self._more) or self._context.cannot_fit.of(pod) is None
                self._queues.see(pod.ref.uid, workload.queue, pod.ref.namespace, takes, placed=placed, asks=asks)
            yield STEP * TAKEN

    def _outcome(self, workload: Workload) -> Generator[int, None, Outcome]:
        why = workload.refusal or self._never(workload) or self._withheld(workload.minimum)
        if why is None:
            placed = yield from self._plan(workload)
            if isinstance(placed, Placement):
                yield from self._take(workload, placed.assignments)
                return Outcome(workload=workload, state="now", assignments=placed.assignments)
            why = self._why(workload, placed)
        forbidden = ""
        if why.code in PREEMPTS and self._may_preempt(workload):
            victims = yield from self._search(workload)
            if isinstance(victims, Victims):
                yield from self._take(workload, victims.assignments)
                self._gone.update(victim.uid for unit in victims.units for victim in unit.victims)
                places, units = victims.assignments, victims.units
                return Outcome(workload=workload, state="preempts", reason=why, assignments=places, victims=units)
            forbidden = victims.why if not victims.postponed else ""
        outcome = Outcome(workload=workload, state="waits", reason=why, forbidden=forbidden)
        return (yield from self._later(outcome)) if why.code in FOR_ROOM else outcome

    def _later(self, outcome: Outcome) -> Generator[int, None, Outcome]:
        """When there is room, or whether there would be none even on empty nodes."""
        workload = outcome.workload
        wanted = Wanted(tuple(workload.minimum), workload.free)
        view, claims, rank = self._sandbox.untouched, self._sandbox.claims, self._rank(workload)
        first = yield from self._backfill.earliest(view, wanted, claims, self._gone, rank, self._now)
        if first is not None:
            return msgspec.structs.replace(outcome, state="later", assignments=first.assignments, earliest=first)
        fits = yield from may_fit_empty(view, self._context.ledger, wanted)
        return outcome if fits else msgspec.structs.replace(outcome, state="never")

    # -- the queue

    def _rank(self, workload: Workload) -> Rank:
        local_queue = self._queues.of(next(iter(workload.pods)))
        return self._queues.at(local_queue).rank if local_queue is not None else (), workload.turn

    def _withheld(self, seats: Sequence[Seat]) -> Reason | None:
        """Why their queue does not admit these pods, None if it does."""
        uids, quota = [seat.uid for seat in seats], Quota(self._queues)
        local_queue = self._queues.of(uids[0]) if uids else None
        if local_queue is None:
            return None
        return quota.shortage(local_queue, quota.together(uids))

    def _in_line(self, outcome: Outcome) -> Generator[int, None, Outcome]:
        """The outcome with its queue, and its place there."""
        workload, heads = outcome.workload, self._backfill.heads
        local_queue = self._queues.of(next(iter(workload.pods)))
        if local_queue is None:
            return outcome
        name, turn = self._queues.at(local_queue).name, workload.turn
        before = waiting = 0
        for number, other in enumerate(heads.everybody()):
            there = heads.queue(other) if other is not None else None
            if other is not None and there is not None and there.name == name:
                before, waiting = before + (other.turn < turn), waiting + 1
            if number % STEP == 0:
                yield STEP * LOOK
        mine = [each.turn for each in self._waiting if self._queue_of(each) == name]
        place = before + sum(other < turn for other in mine) + 1
        return msgspec.structs.replace(outcome, queue=name, place=place, in_line=waiting + len(mine) + 1)

    def _queue_of(self, workload: Workload) -> str:
        local_queue = self._queues.of(next(iter(workload.pods)))
        return self._queues.at(local_queue).name if local_queue is not None else ""

    # -- places

    def _plan(self, workload: Workload) -> Generator[int, None, Placement | Failure]:
        """Places for all of its pods, else for its smallest start; only for that if the queue admits no more."""
        withheld = self._withheld(workload.seats)
        seats = workload.seats if withheld is None else workload.minimum
        view = self._sandbox.view
        if workload.gang is not None or workload.seats[0].ask is not None:
            end = self._now + workload.expected_s
            view = msgspec.structs.replace(
                view, kept=self._backfill.guards(self._rank(workload), workload.who, end, self._now)
            )
        return (yield from Plan(view, seats, workload.minimum, workload.free).whole())

    def _take(self, workload: Workload, assignments: Mapping[str, Assignment]) -> Iterator[int]:
        """Those after it find these places taken, and the quota used."""
        yield PIECE
        yield from self._sandbox.take(workload.pods, assignments)
        yield from self._count(workload, placed=True)

    def _never(self, workload: Workload) -> Reason | None:
        """Why no node of the cluster could take a single pod even if it were empty."""
        if workload.gang is not None or self._more:
            return None
        return self._context.cannot_fit.of(next(iter(workload.pods.values())))

    def _why(self, workload: Workload, failure: Failure) -> Reason:
        gang, pods = workload.gang, workload.pods.values()
        if gang is None:
            kept = isinstance(failure, Shortage) and any(why == KEPT for _, why in failure.passed)
            ask = next(iter(pods)).ask
            found = refusals.KEPT_IN_LINE if kept else NO_CPU if ask is None else refusals.no_room(ask)
            return Reason(found.code, found.sentence, str(failure))
        if isinstance(failure, Mixture):
            return refusals.gang_mixed(gang.key)
        whys = () if self._more else map(self._context.cannot_fit.of, pods)
        never = [str(why) for why in whys if why is not None]
        hopeless = len(pods) - len(never) < (gang.terms.min_member or 0)
        about = refusals.gang_cannot_fit if hopeless else refusals.gang_no_room
        return about(gang.key, "; ".join([*never[:1], str(failure)]))

    # -- preemption

    def _may_preempt(self, workload: Workload) -> bool:
        return self._preemption.on and not (self._more or workload.never)

    def _search(self, workload: Workload) -> Generator[int, None, Victims | NoSolution]:
        by = Preemptor(
            workload.who, workload.priority, {seat.uid: workload.pods[seat.uid] for seat in workload.minimum}
        )
        wanted = Wanted(tuple(workload.minimum), workload.free)
        view, claims = self._context.gangs.planner.view, list(self._sandbox.claims)
        search = self._preemption.search(by, wanted, self._now, view, self._queues, claims, self._gone)
        return (yield from search.whole())


def _kind(workload: Workload) -> object:
    """Equal for single pods of which none starts if another does not."""
    if workload.gang is not None:
        return workload.who, workload.namespace
    asked = workload.seats[0].likeness, workload.priority, workload.never, workload.expected_s
    return *asked, workload.queue, workload.namespace, workload.refusal


def _behind(known: Outcome, workload: Workload) -> Outcome:
    """The outcome of a single pod like one that waits: it is the next in line."""
    behind = int(known.place > 0)
    place, in_line = known.place + behind, known.in_line + behind
    return msgspec.structs.replace(known, workload=workload, place=place, in_line=in_line)
