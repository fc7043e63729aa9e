"""What every policy works on: the cluster's state, the queues, the gangs, and the settings."""

from __future__ import annotations

from extender.engine.gangs.gangs import Gangs
from extender.engine.planning.movable_pods import MovablePods
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.runtimes import Runtimes
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.context import EngineContext
from extender.engine.state.reservations import Reservations
from extender.engine.state.running_pods import RunningPods


class PolicyContext(EngineContext, frozen=True, kw_only=True):
    """Made once; every policy and each of its parts is given the same."""

    gangs: Gangs
    running_pods: RunningPods
    movable_pods: MovablePods
    tenancy: Tenancy
    priorities: Priorities
    reservations: Reservations
    runtimes: Runtimes
    order: PendingOrder
