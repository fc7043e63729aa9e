"""What the engine consists of: every part is made once and given those that it needs."""

from __future__ import annotations

from collections import Counter

import msgspec

from extender.engine.cycle.booking import Booking
from extender.engine.cycle.pending_reasons import PendingReasons
from extender.engine.cycle.worth import Worth
from extender.engine.gangs.activator import ReservationActivator
from extender.engine.gangs.assignments import Assignments
from extender.engine.gangs.barrier import Barrier
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.gates import Gates
from extender.engine.gangs.planner import GangPlanner
from extender.engine.placement.index import Indexes
from extender.engine.placement.offers import Offers
from extender.engine.planning.movable_pods import MovablePods
from extender.engine.policies.backfill.backfill import Backfill
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.policies.elastic.surplus_policy import SurplusPolicy
from extender.engine.policies.preemption.preempt import Preemption
from extender.engine.queueing.order import PendingOrder, Turns
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.runtimes import Runtimes
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.queueing.waking import Waking
from extender.engine.state.classes import Classes
from extender.engine.state.context import EngineContext
from extender.engine.state.holds import Holds
from extender.engine.state.ledger import Ledger
from extender.engine.state.observe import Observer
from extender.engine.state.pod_state import PodState
from extender.engine.state.presence import Presence
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.reservations import Reservations
from extender.engine.state.roster import Roster
from extender.engine.state.running_pods import RunningPods
from extender.engine.types.effects import Effect
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall


class Components:
    """All of them, those first on which others stand."""

    def __init__(self, settings: Settings, wall: float) -> None:
        """`wall` is what the wall clock showed (s since 1970) when the monotonic clock showed zero."""
        self.settings = settings
        self.counters: Counter[tuple[str, str]] = Counter()
        """(what, label) → how often: decisions by code, conflicts, problems by kind, wakes."""
        self.effects: list[Effect] = []
        """What is to be done and was not told yet."""
        self.quarantine = Quarantine(self.counters)
        self.wall = Wall(wall)
        self._make_books()
        self._make_queues_and_gangs()
        self._make_claims()
        self.pending_reasons = PendingReasons(self.ledger, self.indexes, self.classes, self.gangs.roster)
        self.worth = Worth(self.ledger, self.gangs.planner.view)

    def _make_books(self) -> None:
        """Nodes, pods, GPUs and tenants, how nodes rank, and what single pods are promised."""
        settings = self.settings
        self.ledger = Ledger(
            settings.unit_mib,
            settings.slices_per_gpu,
            settings.gpushare,
            changed=self._changed,
            moved=self._moved,
        )
        self.indexes = Indexes(self.ledger.nodes)
        self.classes = Classes(self.ledger.stock, self.quarantine)
        self.offers = Offers(self.ledger.nodes, self.indexes, settings)
        self.observer = Observer(self.ledger, settings, self.counters, self.classes)
        self.holds = Holds(self.ledger, self.quarantine, settings.soft_charge_s, settings.undecided_s)
        self.presence = Presence()
        self.running_pods = RunningPods(self.ledger.pods, settings, self.wall)
        roster = self._roster = Roster(settings.patience, self.wall)
        self.movable_pods = MovablePods(self.ledger.pods, self.ledger.on_node, roster)
        self.runtimes = Runtimes(roster)
        self.priorities = Priorities(settings.group_priority)
        self.order = PendingOrder(roster, self.runtimes, self.priorities, self.wall)
        self.tenancy = Tenancy(
            self.ledger, settings, self.classes.known, self.quarantine, self.order, self._in_other_queue
        )
        self.waking = Waking(self.ledger, self.tenancy, self.quarantine, self.order)
        counters, quarantine, wall = self.counters, self.quarantine, self.wall
        self._context = EngineContext(
            ledger=self.ledger, settings=settings, counters=counters, quarantine=quarantine, wall=wall
        )

    def _make_queues_and_gangs(self) -> None:
        """Who may start, whose turn it is, and gangs from their first member to their last."""
        settings = self.settings
        admission = self.tenancy.admission
        roster, turns = self._roster, Turns(admission.local_queue, admission.queue_rank, self.order)
        assignments = Assignments(self.ledger, admission.batched)
        planner = GangPlanner(self.ledger, self.indexes, settings, admission, turns, assignments)
        self.booking = Booking(self.ledger, assignments, self.waking, settings, self.counters)
        release, capped = self.booking.release, self.priorities.capped
        self.gangs = Gangs(self._context, roster, admission, planner, release, self._unpromise, capped)
        self.gates = Gates(self.ledger, self.indexes, self.waking, roster, settings.nominate_from)
        self.barrier = Barrier(self.gangs)
        self.surplus_policy = SurplusPolicy(self.ledger, self.gangs, self.tenancy.queues, self.priorities)

    def _make_claims(self) -> None:
        """What room is kept, given back, taken from others, or left to the first in line."""
        settings = self.settings
        quota = self.tenancy.admission.quota
        self.reservations = Reservations(self.ledger, self.quarantine, settings, quota, self.wall)
        self.activator = ReservationActivator(
            self.reservations, self.gangs, self.barrier, self.counters, self.quarantine
        )
        context = PolicyContext(
            **msgspec.structs.asdict(self._context),
            gangs=self.gangs,
            running_pods=self.running_pods,
            tenancy=self.tenancy,
            priorities=self.priorities,
            reservations=self.reservations,
            runtimes=self.runtimes,
            order=self.order,
        )
        self.elastic = Elastic(context)
        self.preemption = Preemption(context, self.elastic)
        self.backfill = Backfill(context, self.waking)

    def _changed(self, node: str, room: bool, amounts: bool) -> None:
        """None of these may fail: the books have changed, and the caller goes on."""
        if amounts:  # a score tells nothing of labels and taints
            self.indexes.stale(node)
        self.ledger.stock.changed(node)
        self.tenancy.stale(node)
        self.reservations.changed(node)
        if room:
            self.waking.room(node)

    def _moved(self, pod: PodState) -> None:
        """The books are right, whatever its queue says. What keeps room counts there by its promise alone."""
        self.reservations.moved(pod.ref.uid)
        if pod.ref.uid in self.ledger.pods:
            self.quarantine.each((pod,), lambda pod: pod.subject, "queues", self.tenancy.moved)

    def _in_other_queue(self, uid: str) -> None:
        self.reservations.moved(uid)
        self.waking.moved(uid)

    def _unpromise(self, pod: PodState) -> None:
        """The pod is not placed as a single one any more."""
        self.holds.drop(pod)
        self.waking.forget(pod)
