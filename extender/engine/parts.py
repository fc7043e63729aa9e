"""What the engine consists of: every part made once, and told of those that it needs."""

from __future__ import annotations

from collections import Counter

from extender.engine.backfill.backfill import Backfill
from extender.engine.backfill.heads import Heads
from extender.engine.books.booking import Booking
from extender.engine.books.holds import Holds
from extender.engine.books.ledger import Ledger, PodState
from extender.engine.books.reservations import Reservations
from extender.engine.classes import Classes
from extender.engine.effects import Effect, Subject
from extender.engine.elastic.elastic import Elastic
from extender.engine.gangs.barrier import Barrier
from extender.engine.gangs.behind import Behind
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.gates import Gates
from extender.engine.gangs.keeping import Keeping
from extender.engine.gangs.starts import Starts
from extender.engine.moves.tenants import Tenants
from extender.engine.observe import Observer
from extender.engine.placement.index import Indexes
from extender.engine.placement.offers import Offers
from extender.engine.placement.waking import Waking
from extender.engine.placement.worth import Worth
from extender.engine.preemption.occupants import Occupants
from extender.engine.preemption.preempt import Preemption
from extender.engine.presence import Presence
from extender.engine.quarantine import Quarantine, of_pod
from extender.engine.queues.grants import Grants
from extender.engine.queues.priorities import Priorities
from extender.engine.queues.runtimes import Runtimes
from extender.engine.queues.tenancy import Tenancy
from extender.engine.queues.turns import Turns
from extender.engine.settings import Settings
from extender.engine.telling import Telling
from extender.engine.wall import Wall


class Parts:
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
        self.telling = Telling(self.ledger, self.indexes, self.classes, self.gangs)
        self.worth = Worth(self.gangs.starts, self.tenants)

    def _make_books(self) -> None:
        """Nodes, pods, GPUs and tenants, how nodes rank, and what single pods are promised."""
        settings = self.settings
        self.ledger = Ledger(settings.unit_mib, settings.slices_per_gpu, settings.gpushare, self._changed)
        self.indexes = Indexes(self.ledger.nodes)
        self.classes = Classes(self.ledger.stock, self.quarantine)
        self.offers = Offers(self.ledger.nodes, self.indexes, settings)
        self.observer = Observer(self.ledger, settings, self.counters, self.classes)
        self.tenancy = Tenancy(self.ledger, settings, self.classes.known, self.quarantine)
        self.waking = Waking(self.ledger, self.tenancy.queues, self.quarantine)
        self.tenancy.queues.moved = self.waking.moved
        self.holds = Holds(self.ledger, self.quarantine, settings.soft_charge_s, settings.undecided_s)
        self.presence = Presence()
        self.gates = Gates(self.ledger, self.indexes, self.waking, settings.nominate_from)
        self.tenants = Tenants(self.ledger.pods, self.ledger.on_node)

    def _make_queues_and_gangs(self) -> None:
        """Who may start, whose turn it is, and gangs from their first member to their last."""
        settings = self.settings
        self.ledger.moved, self.waking.admits = self._moved, self.tenancy.admits
        admission = self.tenancy.admission
        self.runtimes = Runtimes(lambda uid: self.gangs.of(uid))
        self.priorities = Priorities(settings.group_priority)
        turns = Turns(admission.account, admission.standing, self.runtimes.of_gang, self.priorities.highest)
        starts = Starts(self.ledger, self.indexes, settings, admission, turns)
        self.ledger.renumbered = starts.renumbered
        self.booking = Booking(self.ledger, starts, self.waking, settings, self.counters)
        self.gangs = Gangs(
            self.ledger,
            settings,
            self.counters,
            self.quarantine,
            starts,
            self.booking.release,
            self._unpromise,
            self.priorities.capped,
            self.wall,
        )
        self.barrier = Barrier(self.gangs)
        self.behind = Behind(self.ledger, self.gangs, self.tenancy.queues, self.priorities)
        self.waking.defers, self.waking.spare = self.behind.waits, self.behind.spare

    def _make_claims(self) -> None:
        """What room is kept, given back, taken from others, or left to the first in line."""
        settings, admission = self.settings, self.tenancy.admission
        grants = Grants(self.tenancy.queues, admission)
        self.reservations = Reservations(self.ledger, self.quarantine, settings, grants, self.wall)
        self.keeping = Keeping(self.reservations, self.gangs, self.barrier, self.counters, self.quarantine)
        self.occupants = Occupants(settings, self.wall)
        self.elastic = Elastic(
            self.ledger, self.gangs, self.tenants, admission, settings, self.counters, self.quarantine, self.wall
        )
        self.preemption = Preemption(
            self.ledger,
            self.gangs,
            self.occupants,
            self.tenants,
            self.tenancy,
            self.priorities,
            self.reservations,
            self.elastic,
            settings,
            self.counters,
            self.quarantine,
            self.wall,
        )
        heads = Heads(
            self.ledger,
            self.gangs,
            self.occupants,
            self.tenants,
            self.tenancy,
            self.priorities,
            self.reservations,
            self.runtimes,
            self.quarantine,
            self.wall,
        )
        self.backfill = Backfill(
            self.ledger,
            self.gangs,
            self.occupants,
            self.reservations,
            self.waking,
            self.runtimes,
            heads,
            settings,
            self.quarantine,
        )
        self.gangs.starts.kept = self.backfill.before_gang
        self.waking.first, self.waking.open_to = self.backfill.pods, self.backfill.open_to

    def _changed(self, node: str, room: bool) -> None:
        """None of these may fail: the books have changed, and the caller goes on."""
        self.indexes.stale(node)
        self.ledger.stock.changed(node)
        self.tenancy.stale(node)
        self.reservations.changed(node)
        if room:
            self.waking.room(node)

    def _moved(self, pod: PodState) -> None:
        """The books are right, whatever its queue says. What keeps room counts there by its promise alone."""
        if pod.ref.uid in self.ledger.pods:
            self.quarantine.each((pod,), _subject, "queues", self.tenancy.moved)

    def _unpromise(self, pod: PodState) -> None:
        """The pod is not placed as a single one any more."""
        self.holds.drop(pod)
        self.waking.forget(pod)


def _subject(pod: PodState) -> Subject:
    return of_pod(pod.ref.uid)
