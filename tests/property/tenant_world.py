"""A small cluster that a few tenants share: jobs of all sizes come, run, die, are evicted, and come again.

It keeps books of its own on who was evicted for whom, and holds every plan to evict against all smaller ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from extender.engine.planning.solver import Wanted
from extender.engine.policies.preemption.attempt import Preemptor
from extender.engine.policies.preemption.units import Unit
from extender.engine.policies.preemption.victims import NoSolution, Search, Victims
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.types.effects import Effect, Evict
from extender.engine.types.sliced import Sliced
from gangfilter.members import Stage
from gangfilter.table import Phase
from protos.contract import names
from protos.contract.objects import Pod
from protos.contract.queue import GPU, GPUS
from tests.builders import a_node
from tests.property.without import Without, parts
from tests.unit.engine.gang_story import members
from tests.unit.engine.preemption_story import PreemptionStory, urgent
from tests.unit.engine.test_queues import a_queue, in_queue

NODES, EACH = 3, 4
SIZES = (1, 1, 2, 2, 3, 4)
MIN_RUN_S = 3.0
MOST = 12
"""Units of which all sets are tried: 4,095 of the largest."""
PLACED = (Stage.POSTED, Stage.BOUND, Stage.SUCCEEDED)


class Job(msgspec.Struct):
    """A gang that runs for so many seconds, from when all of its minimum runs."""

    queue: str
    size: int
    least: int
    priority: int
    seconds: float
    name: str = ""
    started: float | None = None


class Reclaim(msgspec.Struct, frozen=True):
    """A pod of one queue was evicted for another queue."""

    by: str
    of: str
    at: float


class TenantWorld:
    """What happens, second by second."""

    def __init__(self, seed: int, each: int = EACH, sizes: Sequence[int] = SIZES) -> None:
        """So many GPUs on each node, and jobs of these sizes."""
        self.draw = random.Random(seed)
        self.total, self.sizes = NODES * each, sizes
        nodes = [a_node(f"n{i}", *[10] * each) for i in range(NODES)]
        self.world = PreemptionStory(*nodes, min_runtime_s=MIN_RUN_S)
        self.queues = list(self._queues())
        self.jobs: dict[str, Job] = {}
        """Those that there are, by name."""
        self.made = self.seen = 0
        self.dying: dict[str, int] = {}
        """Seconds until an evicted pod is gone."""
        self.reclaims: list[Reclaim] = []
        self.plans: list[int] = []
        """The sizes of the plans that were compared with all smaller sets of units."""
        self._watch()

    def _queues(self) -> Iterator[str]:
        """Two to four tenants, sometimes of a higher tier; in half of all worlds some of them are parts of others."""
        tree = self.draw.random() < 0.5
        for number, name in enumerate("abcd"[: self.draw.randint(2, 4)]):
            deserved = self.draw.choice([0, 0, 2, 4])
            said: dict[str, Any] = {"weight": self.draw.randint(1, 3), "priority": self.draw.choice([0, 0, 0, 1])}
            said |= {"deserved": {GPUS: deserved * GPU}} if deserved else {}
            said |= {"guarantee": {GPUS: self.draw.randint(1, 2) * GPU}} if self.draw.random() < 0.3 else {}
            said |= {"capability": {GPUS: self.draw.randint(6, self.total) * GPU}} if self.draw.random() < 0.2 else {}
            said |= (
                {"parent": self.draw.choice("abcd"[:number])} if tree and number and self.draw.random() < 0.6 else {}
            )
            told = a_queue(name, **said)
            self.world.groups.append(told)
            self.world.tell(told)
            yield name

    # -- what is decided

    def _watch(self) -> None:
        """Examine every plan of evictions before it is carried out."""
        preemption = self.world.engine._components.preemption
        searching, take = preemption.search, preemption._take
        searches: list[Search] = []

        def begun(by: Preemptor, wanted: Wanted, now: float, *others: Any) -> Search:
            searches[:] = [searching(by, wanted, now, *others)]
            return searches[0]

        def passes(key: Any, by: Preemptor, outcome: Victims | NoSolution, now: float) -> Iterator[Effect]:
            if isinstance(outcome, Victims):
                self._examine(searches[0], by, outcome.units)
            return take(key, by, outcome, now)

        preemption.search, preemption._take = begun, passes  # type: ignore[method-assign, assignment]

    def _examine(self, search: Search, by: Preemptor, units: Sequence[Unit]) -> None:
        """Gangs go as a whole, queues keep their fair share, and no smaller set would have done."""
        for unit in units:
            known = self.world.engine.gangs.roster.known[unit.gang] if unit.gang else None
            if known is not None and not unit.spare:
                bound = {member.uid for member in known.gang.at(*PLACED)}
                assert {victim.uid for victim in unit.victims} == bound, f"half of {unit.who} goes"
        mine = self.queue_of(next(iter(by.pods)))
        for unit in units:
            queue = self.queue_of(unit.victims[0].uid)
            assert bool(unit.over_quota) == (queue != mine), f"{unit.who} of {queue} goes for {by.who} of {mine}"
        self._examine_queues(mine, units)
        if len(units) <= MOST:
            self.plans.append(len(units))
            without = Without(search._view, search._draw(), search._wanted)
            assert roomy(search, units)
            assert without.fits(units)
            assert not [some for some in parts(units) if roomy(search, some) and without.fits(some)]

    def _examine_queues(self, mine: str, units: Sequence[Unit]) -> None:
        """Queues keep what they must, or would without the largest unit, and lack less than the taker did."""
        given: dict[str, list[int]] = {}
        for unit in units:
            for gives, asks in self._sides(self.queue_of(unit.victims[0].uid), mine):
                given.setdefault(f"{gives} for {asks}", []).append(len(unit.victims))
        for sides, counts in given.items():
            gives, _, asks = sides.partition(" for ")
            has, floor = self.has(gives, starting=True), self._floor(gives, asks)
            left = has - sum(counts)
            lacking = self.due(asks) - self.has(asks, starting=True)
            keeps = left >= floor - 0.01 or (left + max(counts) > floor and floor - left < lacking)
            assert keeps, (
                f"{gives} gives {counts} of {has} for {asks}, is to keep {floor:g}, and {lacking:g} are lacking"
            )

    def _sides(self, of: str, mine: str) -> list[tuple[str, str]]:
        """The queues that give, from where the paths up the tree part, and the queue that takes there."""
        theirs, ours = self.way(of), self.way(mine)
        while theirs and ours and theirs[0] == ours[0]:
            theirs, ours = theirs[1:], ours[1:]
        return [(gives, ours[0]) for gives in theirs if ours]

    def way(self, queue: str) -> list[str]:
        """From the top of the tree down."""
        return [each.name for each in reversed(list(self.queue_node(queue).path))]

    def _floor(self, queue: str, mine: str) -> float:
        """What a queue keeps in any case."""
        gives, asks = self.queue_node(queue), self.queue_node(mine)
        if asks.queue.guarantee:
            return gives.queue.guarantee.get(GPUS, 0) / GPU
        if asks.queue.priority > gives.queue.priority:
            return max(gives.queue.deserved.get(GPUS, 0), gives.queue.guarantee.get(GPUS, 0)) / GPU
        return self.due(queue)

    # -- how things stand

    def queue_node(self, queue: str) -> QueueNode:
        return self.world.engine.tenancy.queues.queue_nodes[queue]

    def due(self, queue: str) -> float:
        return self.queue_node(queue).due.get(GPUS, 0.0) / GPU

    def has(self, queue: str, *, starting: bool = False) -> int:
        """GPUs of its pods that run and stay; also of those that are `starting`."""
        pods, known = self.world.pods.values(), self.world.engine.pods
        here = [p for p in pods if p.spec.node_name or (starting and known[p.metadata.uid].state != "waiting")]
        stays = [gang_of(p) for p in here if not p.metadata.deletion_timestamp]
        return sum(gang in self.jobs and queue in self.way(self.jobs[gang].queue) for gang in stays)

    def entitled(self) -> dict[str, float]:
        """What queues lack of their fair share, if a pending job would leave them and those above within it."""
        found: dict[str, float] = {}
        for job in self.jobs.values():
            lacking = min(self.due(queue) - self.has(queue) for queue in self.way(job.queue))
            if not self.runs(job) and lacking >= job.least - 0.01:
                found[job.queue] = lacking
        return found

    def queue_of(self, uid: str) -> str:
        account = self.world.engine.tenancy.queues.of(uid)
        return account.at.name if account is not None else ""

    def pods_of(self, job: Job) -> list[str]:
        return [name for name, pod in self.world.pods.items() if gang_of(pod) == job.name]

    def runs(self, job: Job) -> bool:
        return sum(bool(self.world.pods[name].spec.node_name) for name in self.pods_of(job)) >= job.least

    def halves(self) -> list[str]:
        """Gangs that run with fewer members than their minimum, without being repaired or undone."""
        return [
            str(each.gang.key)
            for each in self.world.engine.gangs.roster.known.values()
            if 0 < each.gang.count(*PLACED) < (each.gang.terms.min_member or 0)
            and each.gang.phase not in (Phase.DEGRADED, Phase.UNDOING, Phase.BINDING)
        ]

    # -- what happens

    def submit(self, job: Job) -> None:
        self.made += 1
        job.name, job.started = f"j{self.made}", None
        self.jobs[job.name] = job
        said = {"annotations": in_queue(job.queue), "least": job.least, "owner": job.name}
        made = members(job.size, gang=job.name, prefix=f"{job.name}-", mem=0, whole=1, **said)
        self.world.create(*(urgent(pod, job.priority) for pod in made))

    def end(self, job: Job) -> bool:
        """The job is done or deleted, unless members are in bind; returns whether."""
        pods = self.pods_of(job)
        if not self.world.held.isdisjoint(pods):
            return False
        for name in pods:
            self.dying.pop(name, None)
        self.world.delete(*pods)
        del self.jobs[job.name]
        return True

    def a_job(self) -> Job:
        size = self.draw.choice(self.sizes)
        least = self.draw.choice([size, size, max(1, size - 1)])
        return Job(self.draw.choice(self.queues), size, least, self.draw.choice([0, 0, 5]), self.draw.randint(8, 20))

    def restart(self) -> None:
        """The extender restarts; requests that were not carried out yet are lost."""
        self.world.land()
        self.world.restart()
        self._watch()

    def pass_time(self, *, killed: bool = False) -> list[Job]:
        """One second passes; returns the jobs that ended. `killed`: the extender stops between two evictions."""
        world = self.world
        self.world.schedule()
        world.later(1.0)
        world.annotate()
        evictions = [e for e in world.done[self.seen :] if isinstance(e, Evict)]
        self.seen = len(world.done)
        if killed:
            del evictions[self.draw.randint(0, len(evictions)) :]
        for effect in evictions:
            self._evicted(effect)
        if killed:
            self.restart()
        self._die()
        over = []
        for job in list(self.jobs.values()):
            job.started = (job.started if job.started is not None else world.now) if self.runs(job) else None
            if job.started is not None and world.now >= job.started + job.seconds:
                over += [job] if self.end(job) else []
        assert self.halves() == []
        assert world.engine.check() == []
        return over

    def _evicted(self, effect: Evict) -> None:
        pod = self.world.pods.get(effect.pod.name)
        if pod is None or pod.metadata.uid != effect.pod.uid or pod.metadata.deletion_timestamp:
            return
        if effect.reason.code == "Reclaimed":
            by = self.jobs.get(str(effect.reason).removeprefix("gang default/").partition(" ")[0])
            if by is not None:
                self.reclaims.append(Reclaim(by.queue, self.jobs[gang_of(pod)].queue, self.world.now))
        self.world.terminate(effect.pod.name)
        self.dying[effect.pod.name] = self.draw.randint(0, 2)

    def _die(self) -> None:
        for name in [name for name, left in self.dying.items() if left <= 0]:
            del self.dying[name]
            if name in self.world.pods:
                self.made += 1
                self.world.again(name, self.made)
        self.dying = {name: left - 1 for name, left in self.dying.items()}


def gang_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(names.GROUP, "")


def roomy(search: Search, units: Sequence[Unit]) -> bool:
    """Whether the queues of the pod that waits have room once these are gone."""
    work = Sliced(search.rights.roomy(units))
    while not work.advance():
        pass
    return work.outcome is True
