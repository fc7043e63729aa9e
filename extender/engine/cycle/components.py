"""The components of the engine, each made once and given those that it needs."""

from __future__ import annotations

from collections import Counter

import msgspec

from extender.engine.cycle.booking import Booking
from extender.engine.cycle.pending_reasons import PendingReasons
from extender.engine.cycle.worth import Worth
from extender.engine.gangs.activator import ReservationActivator
from extender.engine.gangs.assignments import Assignments
from extender.engine.gangs.barrier import Barrier
from extender.engine.gangs.context import GangContext
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.gates import Gates
from extender.engine.gangs.planner import GangPlanner
from extender.engine.gangs.provisioning import Provisioning
from extender.engine.gangs.reporter import GangReporter
from extender.engine.placement.indexes import Indexes
from extender.engine.placement.offers import Offers
from extender.engine.planning.movable_pods import MovablePods
from extender.engine.policies.backfill.backfill import Backfill
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.elastic.elastic import Elastic
from extender.engine.policies.elastic.surplus_policy import SurplusPolicy
from extender.engine.policies.nomination.nominations import Nominations
from extender.engine.policies.preemption.preempt import Preemption
from extender.engine.policies.whatif.forecast import Policies
from extender.engine.queueing.order import PendingOrder, Turns
from extender.engine.queueing.priorities import Priorities
from extender.engine.queueing.resizes import Resizes
from extender.engine.queueing.runtimes import Runtimes
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.queueing.waking import Waking
from extender.engine.state.cannot_fit import CannotFit
from extender.engine.state.classes import Classes
from extender.engine.state.context import EngineContext
from extender.engine.state.holds import Holds
from extender.engine.state.isolation_defaults import IsolationDefaults
from extender.engine.state.ledger import Ledger
from extender.engine.state.observe import Observer
from extender.engine.state.outbox import Outbox
from extender.engine.state.pod_state import PodState
from extender.engine.state.presence import Presence
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.reservations import Reservations
from extender.engine.state.roster import Roster
from extender.engine.state.running_pods import RunningPods
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall


class Components:
    """All components, in dependency order.

    Ledger and queues stand below the components that must react to them. So they call back, by the methods at the end.
    These run only after construction.
    """

    def __init__(self, settings: Settings, wall: float) -> None:
        """`wall` is what the wall clock showed (s since 1970) when the monotonic clock showed zero."""
        self.settings = settings
        self.counters: Counter[tuple[str, str]] = Counter()
        """(what, label) → how often: decisions by code, conflicts, errors by kind, requeues."""
        self.outbox = Outbox()
        self.quarantine = Quarantine(self.counters)
        self.wall = Wall(wall)
        self._make_state(settings)
        self._make_queues(settings)
        self._make_gangs(settings)
        self._make_policies()
        self.pending_reasons = PendingReasons(
            self._context, self.indexes, self.classes, self.gangs.roster, self.tenancy
        )
        self.worth = Worth(self.ledger, self.gangs.planner.view)

    def _make_state(self, settings: Settings) -> None:
        """Nodes, pods, GPUs, gangs, and how nodes rank."""
        unit_mib, slices, gpushare = settings.unit_mib, settings.slices_per_gpu, settings.gpushare
        self.ledger = Ledger(unit_mib, slices, gpushare, changed=self._node_changed, moved=self._pod_moved)
        self.cannot_fit = CannotFit(self.ledger, settings.resources)
        self._context = EngineContext(
            ledger=self.ledger,
            cannot_fit=self.cannot_fit,
            settings=settings,
            counters=self.counters,
            quarantine=self.quarantine,
            outbox=self.outbox,
            wall=self.wall,
        )
        self.indexes = Indexes(self.ledger.nodes)
        self.classes = Classes(self.ledger.stock, self.quarantine, self.outbox)
        self.offers = Offers(self.ledger.nodes, self.indexes, settings)
        self.isolation_defaults = IsolationDefaults(settings.default_isolation)
        self.observer = Observer(self._context, self.classes, self.isolation_defaults)
        self.holds = Holds(self.ledger, self.quarantine, settings.soft_charge_s, settings.undecided_s)
        self.presence = Presence()
        self.running_pods = RunningPods(self.ledger.pods, settings, self.wall)
        self._roster = Roster(settings.patience, self.wall)
        self.movable_pods = MovablePods(self.ledger.pods, self.ledger.on_node, self._roster)

    def _make_queues(self, settings: Settings) -> None:
        """The order of pending workloads, quotas, and the requeue."""
        self.runtimes = Runtimes(self._roster, self.outbox)
        self.priorities = Priorities(settings.group_priority)
        self.order = PendingOrder(self._roster, self.runtimes, self.priorities, self.wall)
        self.tenancy = Tenancy(self._context, self.classes.known, self.order, self._queue_changed)
        self.waking = Waking(self._context, self.tenancy, self.order)
        self.resizes = Resizes(self.ledger, self.tenancy.queues, self.tenancy.admission.quota, self.outbox)
        self.reservations = Reservations(self._context, self.tenancy.admission.quota)

    def _make_gangs(self, settings: Settings) -> None:
        """Gangs, their barrier, scheduling gates, and the start of what has reservations."""
        admission = self.tenancy.admission
        turns = Turns(admission.local_queue, admission.queue_rank, self.order)
        assignments = Assignments(self.ledger, admission.batched)
        self.booking = Booking(self.ledger, assignments, self.waking, settings, self.counters)
        reporter = GangReporter(self.outbox)
        planner = GangPlanner(self._context, self._roster, reporter, self.indexes, admission, turns, assignments)
        context = GangContext(
            **msgspec.structs.asdict(self._context),
            roster=self._roster,
            reporter=reporter,
            admission=admission,
            assignments=assignments,
            planner=planner,
            priorities=self.priorities,
            holds=self.holds,
            waking=self.waking,
        )
        self.gangs = Gangs(context, self.booking.release)
        self.gates = Gates(self._context, self.indexes, self.waking)
        self.barrier = Barrier(self.gangs)
        most, after_s = settings.max_gang_size, settings.provisioning_after_s
        self.provisioning = Provisioning(self._roster, planner, self.reservations, after_s, most)
        self.activator = ReservationActivator(self.reservations, self.gangs, self.quarantine, self.outbox)

    def _make_policies(self) -> None:
        """Preemption, backfill, elastic jobs, and nominations."""
        self.surplus_policy = SurplusPolicy(self.ledger, self.gangs, self.tenancy.queues, self.priorities)
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
        self.nominations = Nominations(context, self.indexes, self.holds, self.backfill.open_to)
        self.what_if = Policies(context, self.backfill, self.preemption)

    # -- callbacks of the ledger and the queues

    def _node_changed(self, node: str, room: bool, amounts: bool) -> None:
        """None of these may fail: the books have changed, and the caller goes on."""
        if amounts:  # labels and taints do not change a score
            self.indexes.stale(node)
            self.cannot_fit.changed(node)
        self.ledger.stock.changed(node)
        self.tenancy.stale(node)
        self.reservations.changed(node)
        if room:
            self.waking.room(node)

    def _pod_moved(self, pod: PodState) -> None:
        """Count the pod in its queue as the books have it. A keeper of a reservation counts by its promise alone."""
        self.reservations.moved(pod.ref.uid)
        if pod.ref.uid in self.ledger.pods:
            self.quarantine.each((pod,), lambda pod: pod.subject, "queues", self.tenancy.moved)

    def _queue_changed(self, uid: str) -> None:
        self.reservations.moved(uid)
        self.waking.moved(uid)
        self.tenancy.admission.moved(uid)
