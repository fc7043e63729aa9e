"""Elastic gangs, which run with more or fewer members than they have; other parts of the engine ask this module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.growth import Growth
from extender.engine.policies.elastic.leaving import Leaving
from extender.engine.state.scalers import Scalers
from extender.engine.state.surplus import spared
from extender.engine.types.effects import Effect, PodRef
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member, Stage
from protos.contract.training import API_VERSION, TrainingJob


class Elastic:
    """The scalers of elastic jobs, their growth, and the members that leave nodes."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context
        self.scalers = Scalers(context.counters, context.quarantine, context.wall)
        self._growth = Growth(context, self.scalers)
        self._leaving = Leaving(context, self.scalers, self.spared)

    def job(self, kind: str, key: GroupKey, job: TrainingJob | None) -> None:
        """Read what a job of this API group and version says of scaling; None if it is gone."""
        if kind == API_VERSION:
            self.scalers.put(key, job)

    def lead(self, yes: bool) -> None:
        """Whether this process leads."""
        if not yes:
            self.scalers.give_up()
            self._growth.stop()
            self._leaving.stop()

    def refused(self, uid: str, now: float) -> None:
        """A disruption budget forbids the eviction of this pod."""
        self._leaving.refused(uid, now)

    def spared(self, gang: Gang, first: Iterable[str] = ()) -> list[Member]:
        """The surplus members of a gang in the order in which they go: those in `first` (names) before others."""
        going, unnamed = self.scalers.leaving(gang.key)
        going = going.union(first, self._leaving.asked(gang.key))
        return spared(gang, going, unnamed, self._context.ledger.nodes, self._context.settings.locality_labels)

    def yields(self, gang: Gang) -> bool:
        """Whether surplus members of the gang go before other pods, at equal priority too."""
        return gang.terms.elastic or self._context.settings.elastic_gangs

    def spares(self, gang: Gang, names: Collection[str]) -> bool:
        """Whether all of these members are surplus, together with members that go anyway."""
        going = self.scalers.leaving(gang.key)[0].union(names, self._leaving.asked(gang.key))
        spared = {member.name for member in self.spared(gang, names)}
        return all(member.name in spared for member in gang.at(Stage.BOUND) if member.name in going)

    def tick(self, now: float) -> None:
        """Let time pass."""
        if self._context.gangs.rounds.leading:
            self._context.outbox.extend(self.scalers.tick(now))
            self._growth.tick(now)
            self._leaving.tick(now)

    def work(self, now: float) -> bool:
        """Do a slice of work; return whether there is more to do."""
        growing, leaving = self._growth.work(now), self._leaving.work(now)
        return growing or leaving


class Asking:
    """Workers that operators are asked to remove before pods are evicted: of one or more jobs, before one deadline.

    An operator takes a worker off the job and only then deletes it, so that no work is lost. Workers that it has not
    removed in time are evicted like other pods, by the caller.
    """

    def __init__(self, scalers: Scalers, workers: Mapping[GroupKey, Sequence[PodRef]], patience_s: float) -> None:
        """`patience_s`: seconds that a job has, at least the grace period of its workers."""
        self._scalers, self._patience_s = scalers, patience_s
        self.workers = workers
        self._until: float | None = None
        self.over = not workers

    def look(self, goes: Callable[[str], bool], now: float) -> Iterator[Effect]:
        """Ask for the workers (by UID) that do not go yet; it is `over` if all go, or after the deadline."""
        if self.over:
            return
        left = {key: [pod for pod in pods if not goes(pod.uid)] for key, pods in self.workers.items()}
        left = {key: pods for key, pods in left.items() if pods}
        if self._until is None:
            asked = (self._scalers.asked_at(key, [pod.name for pod in pods], now) for key, pods in left.items())
            self._until = max(asked, default=now) + self._patience_s
        self.over = not left or now >= self._until
        for key, pods in left.items():
            if self.over:
                self._scalers.overdue()
            else:
                yield from self._scalers.shrink(key, [pod.name for pod in pods], now)
