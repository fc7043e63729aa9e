"""What every policy works on: the cluster's state, the queues, the gangs, and the settings."""

from __future__ import annotations

from collections import Counter

import msgspec

from extender.engine.gangs.gangs import Gangs
from extender.engine.planning.movable_pods import MovablePods
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.runtimes import Runtimes
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.ledger import Ledger
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.reservations import Reservations
from extender.engine.state.running_pods import RunningPods
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall


class PolicyContext(msgspec.Struct, frozen=True, kw_only=True):
    """Made once; every policy and each of its parts is given the same."""

    ledger: Ledger
    gangs: Gangs
    running_pods: RunningPods
    movable_pods: MovablePods
    tenancy: Tenancy
    priorities: Priorities
    reservations: Reservations
    runtimes: Runtimes
    settings: Settings
    counters: Counter[tuple[str, str]]
    quarantine: Quarantine
    wall: Wall
