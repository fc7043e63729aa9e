"""Elastic jobs get more workers if GPUs are idle and no pending pod could use them.

A job grows by a ScaleOut, up to its maximum, once there was room for some time and the job itself did not change. The
room is found by a plan as for any gang, and held for the new workers until the ScaleOut ends. One job grows at a time;
jobs with the fewest workers beyond their minimum come first. After a restart, unfinished ScaleOuts are found in the
cluster, and room is held for the workers that are still to come.
"""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from extender.engine.planning.attempt import LOOK, STEP
from extender.engine.planning.plan import Placement, Plan
from extender.engine.policies.context import PolicyContext
from extender.engine.state.intree import Constraints
from extender.engine.state.pod_state import PodState
from extender.engine.state.scalers import Scalers
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
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
"""Seconds within which the workers of a ScaleOut must run, pulling their images included."""
LATE_S = 10.0
"""Seconds for which their room is held beyond that: the operator sees the ScaleOut a moment after it was created."""
LOOKS = 5
"""How often there must have been room before a job grows, evenly over the delay."""
DOUBLINGS, PAUSE_MOST_S = 16, 3600.0
"""How often the pause after a failed ScaleOut is doubled, and its most seconds."""
COMING = (Stage.IDLE, Stage.PLANNED, Stage.IN_BIND, Stage.POSTED)
Rival = tuple[Selection, Constraints]
"""The GPUs and nodes that suit a pending pod."""


class Growing(msgspec.Struct, frozen=True):
    """Room for more workers of a job."""

    key: GroupKey
    model: PodState
    """A worker like those that come."""
    placement: Placement
    until: float | None
    """Until when room is held for workers that were requested before; None: request them."""


class Growth:
    """Looks for room for elastic jobs, one job at a time."""

    def __init__(self, context: PolicyContext, scalers: Scalers) -> None:
        self._context, self._scalers = context, scalers
        self._ledger, self._gangs, self._delay_s = context.ledger, context.gangs, context.settings.scale_out_delay_s
        self._chances: dict[GroupKey, tuple[float, int]] = {}
        """Since when there is room for a job, and how often members had come or gone then."""
        self._kept: set[str] = set()
        """UIDs of ScaleOuts for whose workers room was looked for."""
        self._work: Sliced[Growing | None] | None = None
        self._look_at = 0.0
        self._now = 0.0

    # -- time

    def tick(self, now: float) -> None:
        """Begin to look, if it is time; free room for workers that come no more."""
        self._now = now

        def shed(key: GroupKey) -> None:
            if not self._scale_outs(key):
                self._gangs.controller.shed(key, now)

        self._context.quarantine.each(self._gangs.replacements.growing(), of_gang, "scale-out", shed)
        if self._delay_s and self._work is None and now >= self._look_at and self._scalers.jobs:
            self._look_at = now + self._delay_s / LOOKS
            self._work = Sliced(self._look())

    def stop(self) -> None:
        """Another process leads now."""
        self._work = None
        self._chances.clear()
        self._kept.clear()

    def work(self, now: float) -> bool:
        """Do a slice of looking; return whether there is more to do."""
        self._now = now
        work, self._work = self._work, None  # unless it goes on
        if work is not None and not work.advance():
            self._work = work
        elif work is not None and work.outcome is not None:
            with self._context.quarantine.over(of_gang(work.outcome.key), "scale-out"):
                self._act(work.outcome)
        return self._work is not None

    def _act(self, growing: Growing) -> None:
        assignments = growing.placement.assignments.values()
        self._chances.pop(growing.key, None)
        until = growing.until
        if until is None:
            self._context.outbox.extend(self._scalers.grow(growing.key, len(assignments), TIMEOUT_S, self._now))
            until = self._now + TIMEOUT_S + LATE_S
        held = [msgspec.structs.replace(assignment, until=until) for assignment in assignments]
        self._gangs.controller.grow(growing.key, growing.model, WORKER, held, self._now)

    # -- what a job lacks

    def _scale_outs(self, key: GroupKey) -> list[Scaler]:
        return [scaler for scaler in self._scalers.unfinished(key) if scaler.kind == "ScaleOut"]

    def _look(self) -> Generator[int, None, Growing | None]:
        """The first job that can grow, or has workers to come without room."""
        rivals = yield from self._rivals()
        for key in sorted(self._scalers.jobs, key=self._turn):
            growing = None
            with self._context.quarantine.over(of_gang(key), "scale-out"):
                growing = yield from self._of_job(key, rivals)
            if growing is not None:
                return growing
        return None

    def _of_job(self, key: GroupKey, rivals: set[Rival]) -> Generator[int, None, Growing | None]:
        known = self._gangs.roster.known.get(key)
        runs = known.gang.at(Stage.BOUND) if known is not None else ()
        model = next((member for member in runs if member.role == WORKER), None)
        if known is None or model is None or self._gangs.controller.is_aside(known.gang):
            return None
        yield LOOK
        coming = self._coming(key, known.gang)
        count = coming[0] if coming else self._missing(key, known.gang)
        placement = (yield from self._room(known.gang, model, count)) if count > 0 else None
        pod = self._ledger.pods.get(model.uid)
        if placement is None or pod is None:
            self._chances.pop(key, None)
        elif coming:
            return Growing(key, pod, placement, coming[1])
        elif self._ripe(key, known.gang, placement, rivals):
            return Growing(key, pod, placement, None)
        return None

    def _turn(self, key: GroupKey) -> tuple[float, GroupKey]:
        """The less a job has beyond its minimum, the sooner it grows."""
        job, known = self._scalers.jobs[key], self._gangs.roster.known.get(key)
        has = known.gang.roles(*ON_NODE)[WORKER] if known is not None else 0
        return (has - job.least) / max(1, job.most - job.least), key

    def _coming(self, key: GroupKey, gang: Gang) -> tuple[int, float] | None:
        """Workers still to come of a ScaleOut for which another process held room, and until when to hold it."""
        for scaler in self._scale_outs(key):
            if scaler.ours and scaler.uid and scaler.uid not in self._kept:
                self._kept.add(scaler.uid)
                there = {member.name for member in gang.at(*ON_NODE)}
                until = self._scalers.made_at(scaler, self._now) + min(TIMEOUT_S, scaler.timeout_s) + LATE_S
                known = self._gangs.roster.known[key]
                if until > self._now and not any(replacement.grown for replacement in known.replacements):
                    return scaler.count - sum(pod in there for pod in scaler.pods), until
        return None

    def _missing(self, key: GroupKey, gang: Gang) -> int:
        """How many more workers the job may have, if it may grow now."""
        job = self._scalers.jobs[key]
        pause = min(PAUSE_MOST_S, self._delay_s * 2.0 ** min(DOUBLINGS, self._scalers.failures.get(key, 0)))
        rests = self._now < self._scalers.ended.get(key, -pause) + pause
        steady = gang.phase is Phase.RUNNING and not gang.count(*COMING, Stage.EVICTING) and not gang.preempted
        if not (job.running and steady) or rests or self._scalers.unfinished(key):
            return 0
        return job.most - gang.roles(Stage.BOUND)[WORKER] if self._scalers.serves(key, "ScaleOut") else 0

    def _ripe(self, key: GroupKey, gang: Gang, placement: Placement, rivals: set[Rival]) -> bool:
        """Whether there was room for long enough that no pending pod could use."""
        nodes = [self._ledger.nodes[assignment.node] for assignment in placement.assignments.values()]
        if any(
            constraints.admits(node) and node.books and node.books.eligible(gpus)
            for gpus, constraints in rivals
            for node in nodes
        ):
            self._chances.pop(key, None)
            return False
        since, turnover = self._chances.get(key, (self._now, gang.turnover))
        if turnover != gang.turnover:
            since = self._now
        self._chances[key] = since, gang.turnover
        return self._now >= since + self._delay_s

    # -- rivals, and room

    def _rivals(self) -> Generator[int, None, set[Rival]]:
        """What suits pods that wait for GPUs, and for nothing else."""
        rivals: set[Rival] = set()
        for number, uid in enumerate(list(self._ledger.pods)):
            if number % STEP == 0:
                yield STEP * LOOK
            pod = self._ledger.pods.get(uid)
            if pod is not None and pod.state == "waiting" and pod.ask is not None and self._waits(pod):
                rivals.add((pod.ask.selection, pod.info.constraints))
        return rivals

    def _waits(self, pod: PodState) -> bool:
        known = self._gangs.roster.of(pod.ref.uid)
        if known is not None and pod.ref.uid in known.outsiders:
            return False
        why = known.reason if known is not None else pod.refusal
        if pod.forged or refusals.for_queue(why):
            return False
        return known is None or known.gang.phase is not Phase.ASSEMBLING

    def _room(self, gang: Gang, model: Member, count: int) -> Generator[int, None, Placement | None]:
        """Places for so many more workers, else for half as many, and so on."""
        beside = [member.node for member in gang.at(*ON_NODE)]
        pod = self._ledger.pods[model.uid]
        like = msgspec.structs.replace(Seat.of(pod), ask=self._gangs.models.ask_like(pod), role=WORKER)
        seats: list[Seat] = []
        for i in range(min(count, self._context.settings.max_gang_size)):
            seats.append(msgspec.structs.replace(like, uid=f"{gang.key} {i}"))
            if i % STEP == 0:
                yield STEP * LOOK
        while seats:
            if not isinstance(self._context.tenancy.admission.admits(gang, [model.uid] * len(seats)), Reason):
                outcome = yield from Plan(self._gangs.planner.view, seats, seats, (), beside).whole()
                if isinstance(outcome, Placement):
                    return outcome
            seats = seats[: len(seats) // 2]
        return None
