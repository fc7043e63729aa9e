"""Gangs that run with more or fewer members than they have: the one part of the engine that knows of all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from extender.engine.books.ledger import Ledger
from extender.engine.effects import Effect, ScalerGone, ScalerSeen, ScalersServed
from extender.engine.elastic.growth import Growth
from extender.engine.elastic.scalers import Scalers
from extender.engine.elastic.surplus import spared
from extender.engine.gangs.gangs import Gangs
from extender.engine.moves.tenants import Tenants
from extender.engine.queues.admission import Admission
from extender.engine.settings import Settings
from gangfilter.gang import Gang
from gangfilter.group import GroupKey
from gangfilter.members import Member
from protos.contract.training import API_VERSION, TrainingJob


class Elastic:
    """All of them."""

    def __init__(
        self,
        ledger: Ledger,
        gangs: Gangs,
        tenants: Tenants,
        admission: Admission,
        settings: Settings,
        counters: Counter[tuple[str, str]],
        wall: float,
    ) -> None:
        """`wall` is what the wall clock showed (s since 1970) when the monotonic clock showed zero."""
        self._ledger, self._gangs, self._settings = ledger, gangs, settings
        self.scalers = Scalers(counters, wall)
        self._growth = Growth(ledger, gangs, tenants, admission, self.scalers, settings.grow_after_s)

    def job(self, kind: str, key: GroupKey, job: TrainingJob | None) -> None:
        """What an object of this API group and version says beside what it declares; None if it is gone."""
        if kind == API_VERSION:
            self.scalers.put(key, job)

    def see(self, event: ScalerSeen | ScalerGone | ScalersServed, now: float) -> None:
        """Take in what is told of ScaleIns and ScaleOuts."""
        match event:
            case ScalerSeen(scaler):
                self.scalers.see(scaler, now)
            case ScalerGone(kind, namespace, name):
                self.scalers.gone(kind, namespace, name, now)
            case ScalersServed(kind, yes):
                self.scalers.serve(kind, yes)

    def lead(self, yes: bool) -> None:
        """Whether this process may write."""
        if not yes:
            self.scalers.give_up()
            self._growth.stop()

    def spared(self, gang: Gang) -> list[Member]:
        """The members that a gang can spare, in the order in which they go."""
        going, unnamed = self.scalers.leaving(gang.key)
        return spared(gang, going, unnamed, self._ledger.nodes, self._settings.locality_labels)

    def tick(self, now: float) -> Iterator[Effect]:
        """Let time pass."""
        if self._gangs.leading:
            yield from self.scalers.tick(now)
            self._growth.tick(now)

    def work(self, now: float) -> tuple[bool, Sequence[Effect]]:
        """Do a slice of what takes longer; returns whether there is more to do, and what is to be done."""
        return self._growth.work(now)
