"""Candidates for preemption: pending gangs that do not fit, and single pods for which no node was found."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Literal

import msgspec

from extender.engine.planning.attempt import LOOK, STEP
from extender.engine.planning.solver import Wanted, reopen
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.policies.preemption.attempt import Preemptor
from extender.engine.queueing.order import QueueRank
from extender.engine.queueing.queue_node import LocalQueue
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from gangfilter.group import GroupKey
from gangfilter.members import SETTLED
from gangfilter.minimum import minimum
from gangfilter.table import Phase
from protos.contract.reason import Reason

PAUSE_S, PAUSE_MOST_S = 1.0, 60.0
"""Seconds from a search or preemption in vain until the next for the same candidate; doubled each time."""
LAPSED_S, LAPSED_MOST_S = 300.0, 3600.0
"""The same if victims were evicted and the preemptor did not come: kube-scheduler knows why, and we do not."""
DOUBLINGS = 16
"""How often that is doubled."""
FORGOTTEN, FORGET_S = 4, 2 * PAUSE_MOST_S
"""Backoffs dropped at a time, and seconds after which an expired one is dropped."""
RESTS = 4096
"""Most backoffs that are kept."""
SEEN = 6
"""Cost of looking at a pending workload."""
PASSED = 0.125
"""How much a workload counts that is no candidate."""
Key = GroupKey | tuple[int, int, LocalQueue | None]
"""A gang, or all single pods that are alike (by the hash of their likeness), of one priority and in one queue."""
Moment = tuple[int, int, int, int, int]
"""A version of the cluster: it changes with everything that may let a pod fit."""
Chosen = tuple[Key, Preemptor, Wanted]
How = Literal["done", "coming", "vain", "lapsed"]
"""The result: a start; enough becomes free without preemption; no victims or no evictions; evictions in vain."""
Place = tuple[QueueRank, tuple[int, float, float]]
"""The rank of its queue, and its turn there without the name: the first found comes first among equals."""
Waiting = tuple[Place, Key, GangInfo | PodState]
"""A candidate."""


class Backoff(msgspec.Struct):
    """When to search for a candidate again."""

    pause: float = PAUSE_S
    lapses: int = 0
    """How often in a row pods were evicted for it in vain."""
    again_at: float = 0.0
    sure_at: float = 0.0
    """From then on it is searched for even if nothing has changed: pods have reached their minimum run time."""
    moment: Moment = (-1, -1, -1, -1, -1)
    told: str = ""
    """The reason against it that was reported last."""


class CandidateFilter:
    """A quick check whether a pending workload may find victims, as of the moment when this is made."""

    def __init__(self, tenancy: Tenancy, lowest: int | None, spare: Mapping[str, int]) -> None:
        """`lowest` priority of all pods; `spare`: by queue, that of elastic gangs with surplus members."""
        self._tenancy, self._lowest, self._spare = tenancy, lowest, spare
        self._some_over: bool | None = None
        self._known: dict[LocalQueue, tuple[QueueRank, bool]] = {}

    def rank(self, local_queue: LocalQueue, priority: int) -> QueueRank | None:
        """The rank of the workload's queue; None if there are no pods of lower priority and nothing to reclaim."""
        if local_queue not in self._known:
            self._known[local_queue] = self._tenancy.admission.queue_rank(local_queue), self._reclaims(local_queue)
        rank, reclaims = self._known[local_queue]
        if reclaims or (self._lowest is not None and priority > self._lowest):
            return rank
        spare = self._spare.get(self._tenancy.queues.at(local_queue).name)
        return rank if spare is not None and priority >= spare else None

    def _reclaims(self, local_queue: LocalQueue) -> bool:
        queues = self._tenancy.queues
        if self._some_over is None:
            self._some_over = any(queue_node.exceeds for queue_node in queues.queue_nodes.values())
        at = queues.at(local_queue)
        return self._some_over and (at.part <= 1 or at.lacks or bool(at.below))


class Candidates:
    """Chooses the workload to search victims for."""

    def __init__(self, context: PolicyContext, elastic: Elastic) -> None:
        self._context, self._elastic = context, elastic
        self._gangs, self._running_pods = context.gangs, context.running_pods
        self._rests: dict[Key, Backoff] = {}
        self.seen = 0.0
        """How many workloads were looked at in the last choice."""

    def first(
        self, now: float, moment: Moment, busy: Iterable[str], *, replayed: bool
    ) -> Generator[int, None, Chosen | None]:
        """The first candidate in line that is not `busy`.

        `replayed`: also workloads for which another process has begun to make room.
        """
        best, self.seen = None, 0.0
        lowest = self._context.priorities.lowest(self._running_pods.priorities)
        spare = yield from self._lowest_spare()
        busy, check = frozenset(busy), CandidateFilter(self._context.tenancy, lowest, spare)
        of_pod = partial(self._waiting_pod, check, busy, replayed)
        every = self._context.pending("candidates", partial(self._waiting_gang, check, busy, now), of_pod)
        for number, each in enumerate(every if lowest is not None else ()):
            self.seen += 1 if each is not None else PASSED
            if number % STEP == STEP - 1:
                yield STEP * SEEN
            if each is not None and (best is None or each[0] < best[0]) and self._due(each[1], now, moment):
                best = each
        if best is None:
            return None
        _, key, workload = best
        yield LOOK
        asked = None
        with self._context.quarantine.over(workload.subject, "candidates"):
            asked = self._gang(workload) if isinstance(workload, GangInfo) else self._pod(workload)
        if asked is None or not self._open_to(asked[0].pods, replayed=replayed):
            self.rest(key, now, moment, 0.0, "vain")
            return None
        return key, *asked

    def _lowest_spare(self) -> Generator[int, None, dict[str, int]]:
        """The lowest priority of elastic gangs with surplus members, by queue."""
        spare: dict[str, int] = {}
        for number, known in enumerate(list(self._gangs.roster.known.values())):
            gang = known.gang
            surplus = gang.phase is Phase.RUNNING and gang.count(*SETTLED) > (minimum(gang)[0] or 0)
            if surplus and gang.members and self._elastic.yields(gang):
                queue = self._context.tenancy.queues.at(self._context.tenancy.admission.local_queue(gang)).name
                lowest = self._context.priorities.of(gang, min(member.priority for member in gang.members.values()))
                spare[queue] = min(lowest, spare.get(queue, lowest))
            if number % STEP == STEP - 1:
                yield STEP * LOOK
        return spare

    def _waiting_gang(
        self, check: CandidateFilter, busy: frozenset[str], now: float, known: GangInfo
    ) -> Waiting | None:
        gang, key = known.gang, known.gang.key
        short = known.reason is not None and known.reason.code in (*refusals.GANG_SHORT, *refusals.QUEUE_SHORT)
        if not short or not gang.may_plan(now) or f"gang {key}" in busy or gang in self._gangs.planner.turns:
            return None
        turn = self._context.order.of_gang(gang)
        rank = check.rank(self._context.tenancy.admission.local_queue(gang), -turn.precedence)
        return ((rank, turn[:3]), key, known) if rank is not None else None

    def _waiting_pod(self, check: CandidateFilter, busy: frozenset[str], replayed: bool, uid: str) -> Waiting | None:
        pod = self._running_pods.pending.get(uid)
        if pod is None or not pod.info.unschedulable or pod.info.never:
            return None
        local_queue = self._context.tenancy.queues.of(uid)
        rank = check.rank(local_queue, pod.priority) if local_queue is not None else None
        if local_queue is None or rank is None or not self._may_preempt(pod, replayed) or str(pod.ref) in busy:
            return None
        key = hash(Seat.of(pod).likeness), pod.priority, local_queue
        return (rank, self._context.order.of_pod(pod)[:3]), key, pod

    def _may_preempt(self, pod: PodState, replayed: bool) -> bool:
        if pod.state != "waiting" or isinstance(pod.asked, Reason) or pod.forged:
            return False
        if pod.refusal is not None and refusals.for_queue(pod.refusal) and pod.refusal.code not in refusals.QUEUE_SHORT:
            return False
        if self._context.cannot_fit.of(pod) is not None:
            return False
        return self._open_to((pod.ref.uid,), replayed=replayed)

    def _gang(self, known: GangInfo) -> tuple[Preemptor, Wanted] | None:
        gang = known.gang
        if gang.phase is not Phase.WAITING:
            return None
        _, seats, free = self._gangs.planner.asked(gang)
        pending = self._running_pods.pending
        pods = {seat.uid: pending[seat.uid] for seat in seats if seat.uid in pending}
        if not seats or len(pods) < len(seats) or any(pod.info.never for pod in pods.values()):
            return None
        if self._context.priorities.never(gang):
            return None
        priority = self._context.priorities.of(gang, min(pod.priority for pod in pods.values()))
        return Preemptor(f"gang {gang.key}", priority, pods), Wanted(reopen(self._gangs.planner.view, seats), free)

    def _pod(self, pod: PodState) -> tuple[Preemptor, Wanted] | None:
        if pod.ref.uid not in self._running_pods.pending:
            return None
        wanted = Wanted(reopen(self._gangs.planner.view, [Seat.of(pod)]))
        return Preemptor(str(pod.ref), pod.priority, {pod.ref.uid: pod}), wanted

    def _open_to(self, uids: Iterable[str], *, replayed: bool) -> bool:
        """Whether no room is reserved for these, or only room that another process did not finish making."""
        kept = [reserved for uid in uids if (reserved := self._context.reservations.of(uid)) is not None]
        preempting = all(reserved.preempting for reserved in kept)
        return not kept or (preempting and replayed and not all(reserved.complete for reserved in kept))

    # -- backoff

    def _due(self, key: Key, now: float, moment: Moment) -> bool:
        rest = self._rests.get(key)
        return rest is None or (now >= rest.again_at and (rest.moment != moment or now >= rest.sure_at))

    def rest(self, key: Key, now: float, moment: Moment, min_runtime_s: float, how: How) -> Backoff:
        """Back off after a search or a preemption, longer after each one in vain."""
        self._forget_rested(now)
        rest = self._rests[key] = self._rests.pop(key, Backoff())
        rest.lapses = 0 if how == "done" else rest.lapses + (how == "lapsed")
        pause = min(LAPSED_MOST_S, LAPSED_S * 2.0 ** min(rest.lapses - 1, DOUBLINGS)) if how == "lapsed" else rest.pause
        rest.moment, rest.again_at = moment, now + pause
        rest.sure_at = now + max(pause, min_runtime_s)
        rest.pause = min(PAUSE_MOST_S, 2 * rest.pause) if how == "vain" else PAUSE_S
        return rest

    def _forget_rested(self, now: float) -> None:
        """Drop backoffs that expired long ago, and the oldest if there are too many."""
        for key, rest in list(islice(self._rests.items(), FORGOTTEN)):
            if len(self._rests) >= RESTS or now >= max(rest.again_at, rest.sure_at) + FORGET_S:
                del self._rests[key]
