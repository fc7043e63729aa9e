"""Elastic jobs take more workers when GPUs are idle and nobody waits who could use them.

A job grows by a ScaleOut up to its maximum, once there was room for that long, and nothing else happened to the job.
The room is found by the placement of any gang, and kept for the workers that come until the ScaleOut ends. One job at a
time, those first that have least beyond their minimum. Whoever starts anew finds unfinished ScaleOuts in the cluster,
and keeps room for what is still to come of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import msgspec

from extender.engine.planning.attempt import LOOK, STEP
from extender.engine.planning.plan import Placement, Plan
from extender.engine.policies.context import PolicyContext
from extender.engine.state.intree import Constraints
from extender.engine.state.pod_state import PodState
from extender.engine.state.scalers import Scalers
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from extender.engine.types.effects import Effect
from extender.engine.types.sliced import Sliced
from extender.engine.types.subject import of_gang
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import ON_NODE, Member, Stage
from gangfilter.table import Phase
from protos.contract.reason import Reason
from protos.contract.selection import Selection
from protos.contract.training import WORKER, Scaler

TIMEOUT_S = 300.0
"""Seconds that the workers of a ScaleOut have to run, their images to be pulled among that."""
LATE_S = 10.0
"""Seconds for which their room is kept after that: the operator takes it up a moment after it was made."""
LOOKS = 5
"""How often there must have been room before a job grows, evenly over the time for which it must."""
DOUBLINGS, PAUSE_MOST_S = 16, 3600.0
"""How often the pause after a ScaleOut that failed is doubled, and its seconds at most."""
COMING = (Stage.IDLE, Stage.PLANNED, Stage.IN_BIND, Stage.POSTED)
Rival = tuple[Selection, Constraints]
"""What somebody who waits wants: which GPUs, on which nodes."""


class Chance(msgspec.Struct):
    """Room for a job."""

    since: float
    turnover: int
    """How often members had come or gone then."""


class Found(msgspec.Struct, frozen=True):
    """What is to be done for a job."""

    key: GroupKey
    model: PodState
    """A worker like those that come."""
    placement: Placement
    until: float | None
    """Until when room is kept for workers that were asked for before; None: they are to be asked for."""


class Growth:
    """All of it."""

    def __init__(self, context: PolicyContext, scalers: Scalers) -> None:
        self._context, self._scalers = context, scalers
        self._ledger, self._gangs, self._delay_s = context.ledger, context.gangs, context.settings.scale_out_delay_s
        self._chances: dict[GroupKey, Chance] = {}
        self._kept: set[str] = set()
        """UIDs of ScaleOuts for whose workers room was looked for."""
        self._work: Sliced[Found | None] | None = None
        self._look_at = 0.0
        self._now = 0.0

    # -- time

    def tick(self, now: float) -> None:
        """Begin to look, if it is time; room that nobody comes for any more is free."""
        self._now = now

        def shed(key: GroupKey) -> None:
            if not self._growing(key):
                self._gangs.controller.shed(key, now)

        self._context.quarantine.each(self._gangs.replacements.growing(), of_gang, "scale-out", shed)
        if self._delay_s and self._work is None and now >= self._look_at and self._scalers.jobs:
            self._look_at = now + self._delay_s / LOOKS
            self._work = Sliced(self._look())

    def stop(self) -> None:
        """Another process decides now."""
        self._work = None
        self._chances.clear()
        self._kept.clear()

    def work(self, now: float) -> tuple[bool, Sequence[Effect]]:
        """Do a slice of looking; returns whether there is more to do, and what is to be done."""
        self._now = now
        work, self._work = self._work, None  # unless it goes on
        effects: list[Effect] = []
        if work is not None and not work.advance():
            self._work = work
        elif work is not None and work.outcome is not None:
            with self._context.quarantine.over(of_gang(work.outcome.key), "scale-out"):
                effects += self._act(work.outcome)
        return self._work is not None, effects

    def _act(self, found: Found) -> Iterator[Effect]:
        assignments = found.placement.assignments.values()
        self._chances.pop(found.key, None)
        until = found.until
        if until is None:
            yield from self._scalers.grow(found.key, len(assignments), TIMEOUT_S, self._now)
            until = self._now + TIMEOUT_S + LATE_S
        kept = [msgspec.structs.replace(assignment, until=until) for assignment in assignments]
        self._gangs.controller.grow(found.key, found.model, WORKER, kept, self._now)

    # -- what a job lacks

    def _growing(self, key: GroupKey) -> list[Scaler]:
        """Its ScaleOuts that are not finished."""
        return [scaler for scaler in self._scalers.unfinished(key) if scaler.kind == "ScaleOut"]

    def _look(self) -> Generator[int, None, Found | None]:
        """The first job for which there is something to do."""
        rivals = yield from self._rivals()
        for key in sorted(self._scalers.jobs, key=self._turn):
            found = None
            with self._context.quarantine.over(of_gang(key), "scale-out"):
                found = yield from self._of_job(key, rivals)
            if found is not None:
                return found
        return None

    def _of_job(self, key: GroupKey, rivals: set[Rival]) -> Generator[int, None, Found | None]:
        """What is to be done for one job."""
        known = self._gangs.roster.known.get(key)
        runs = known.gang.at(Stage.BOUND) if known is not None else ()
        model = next((member for member in runs if member.role == WORKER), None)
        if known is None or model is None or self._gangs.controller.is_aside(known.gang):
            return None
        yield LOOK
        coming = self._to_be_kept(key, known.gang)
        count = coming[0] if coming else self._missing(key, known.gang)
        placement = (yield from self._room(known.gang, model, count)) if count > 0 else None
        pod = self._ledger.pods.get(model.uid)
        if placement is None or pod is None:
            self._chances.pop(key, None)
        elif coming:
            return Found(key, pod, placement, coming[1])
        elif self._ripe(key, known.gang, placement, rivals):
            return Found(key, pod, placement, None)
        return None

    def _turn(self, key: GroupKey) -> tuple[float, GroupKey]:
        """The less a job has beyond its minimum, the sooner."""
        job, known = self._scalers.jobs[key], self._gangs.roster.known.get(key)
        has = known.gang.roles(*ON_NODE)[WORKER] if known is not None else 0
        return (has - job.least) / max(1, job.most - job.least), key

    def _to_be_kept(self, key: GroupKey, gang: Gang) -> tuple[int, float] | None:
        """How many workers are still to come of a ScaleOut for which another process kept room, and until when."""
        for scaler in self._growing(key):
            if scaler.ours and scaler.uid and scaler.uid not in self._kept:
                self._kept.add(scaler.uid)
                there = {member.name for member in gang.at(*ON_NODE)}
                until = self._scalers.made_at(scaler, self._now) + min(TIMEOUT_S, scaler.timeout_s) + LATE_S
                known = self._gangs.roster.known[key]
                if until > self._now and not any(replacement.grown for replacement in known.replacements):
                    return scaler.count - sum(pod in there for pod in scaler.pods), until
        return None

    def _missing(self, key: GroupKey, gang: Gang) -> int:
        """How many workers the job may have beyond those that it has, if it may grow now."""
        job = self._scalers.jobs[key]
        pause = min(PAUSE_MOST_S, self._delay_s * 2.0 ** min(DOUBLINGS, self._scalers.failures.get(key, 0)))
        rests = self._now < self._scalers.ended.get(key, -pause) + pause
        steady = gang.phase is Phase.RUNNING and not gang.count(*COMING, Stage.EVICTING) and not gang.preempted
        if not (job.running and steady) or rests or self._scalers.unfinished(key):
            return 0
        return job.most - gang.roles(Stage.BOUND)[WORKER] if self._scalers.serves(key, "ScaleOut") else 0

    def _ripe(self, key: GroupKey, gang: Gang, placement: Placement, rivals: set[Rival]) -> bool:
        """Whether there was room for long enough, and nobody waits who could use it."""
        nodes = [self._ledger.nodes[assignment.node] for assignment in placement.assignments.values()]
        if any(
            pending_pod.admits(node) and node.books and node.books.eligible(gpus)
            for gpus, pending_pod in rivals
            for node in nodes
        ):
            self._chances.pop(key, None)
            return False
        chance = self._chances.setdefault(key, Chance(self._now, gang.turnover))
        if chance.turnover != gang.turnover:
            self._chances[key] = chance = Chance(self._now, gang.turnover)
        return self._now >= chance.since + self._delay_s

    # -- who else there is, and where there is room

    def _rivals(self) -> Generator[int, None, set[Rival]]:
        """What those want who wait for GPUs, and for nothing else."""
        found: set[Rival] = set()
        for number, uid in enumerate(list(self._ledger.pods)):
            if number % STEP == 0:
                yield STEP * LOOK
            pod = self._ledger.pods.get(uid)
            if pod is not None and pod.state == "waiting" and pod.ask is not None and self._waits(pod):
                found.add((pod.ask.selection, pod.info.constraints))
        return found

    def _waits(self, pod: PodState) -> bool:
        known = self._gangs.roster.of(pod.ref.uid)
        why = known.reason if known is not None else pod.refusal
        if pod.forged or refusals.for_queue(why):
            return False
        return known is None or known.gang.phase is not Phase.ASSEMBLING

    def _room(self, gang: Gang, model: Member, count: int) -> Generator[int, None, Placement | None]:
        """Places for so many more workers, else for half as many, and so on."""
        pod, beside = self._ledger.pods[model.uid], [member.node for member in gang.at(*ON_NODE)]
        asked, constraints = pod.ask, pod.info.constraints
        seats: list[Seat] = []
        for i in range(min(count, self._context.settings.max_gang_size)):
            seats.append(Seat(f"{gang.key} {i}", asked, pod.requests, constraints, role=WORKER))
            if i % STEP == 0:
                yield STEP * LOOK
        while seats:
            if not isinstance(self._context.tenancy.admission.admits(gang, [model.uid] * len(seats)), Reason):
                found = yield from Plan(self._gangs.planner.view, seats, seats, (), beside).whole()
                if isinstance(found, Placement):
                    return found
            seats = seats[: len(seats) // 2]
        return None
