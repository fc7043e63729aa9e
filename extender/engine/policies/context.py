"""The state that every policy works on: the cluster, the queues, the gangs, and the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

from extender.engine.gangs.gangs import Gangs
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.runtimes import Runtimes
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.context import EngineContext
from extender.engine.state.reservations import Reservations
from extender.engine.state.roster import GangInfo
from extender.engine.state.running_pods import RunningPods
from extender.engine.types.subject import of_pod

T = TypeVar("T")


class PolicyContext(EngineContext, frozen=True, kw_only=True):
    """Made once and passed to every policy and its parts."""

    gangs: Gangs
    running_pods: RunningPods
    tenancy: Tenancy
    priorities: Priorities
    reservations: Reservations
    runtimes: Runtimes
    order: PendingOrder

    def pending(
        self, place: str, gang: Callable[[GangInfo], T | None], pod: Callable[[str], T | None]
    ) -> Iterator[T | None]:
        """The results for each gang, and for each pending single pod (by UID); None for one that raises an error."""
        known = list(self.gangs.roster.known.values())
        gangs = self.quarantine.tried(known, lambda each: each.subject, place, gang)
        return chain(gangs, self.quarantine.tried(self.pending_singles, of_pod, place, pod))

    @property
    def pending_singles(self) -> list[str]:
        """The UIDs of pending pods that are not members of a gang."""
        return self.gangs.roster.singles(self.running_pods.pending)
