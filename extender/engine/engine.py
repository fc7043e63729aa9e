"""Every decision of the extender: events of the world in, effects out; kube-scheduler's questions answered.

`step(event, now)` takes what the watches tell and returns what to do; `filter`, `prioritize`, `preempt` and `bind`
answer from memory. `now` is in seconds of a monotonic clock. A pod that filter sends to several equal nodes keeps its
best one softly charged until its bind says which; bind books for good, before anything is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from extender.engine import dialect, refusals
from extender.engine.books.booking import Booking
from extender.engine.books.holds import Holds
from extender.engine.books.ledger import Ledger, NodeState, PodState
from extender.engine.books.reservations import Reservations
from extender.engine.classes import Classes
from extender.engine.effects import (
    Already,
    BindAnswer,
    BindDone,
    BindLeft,
    BudgetGone,
    BudgetSeen,
    ClassGone,
    ClassSeen,
    Effect,
    Event,
    EvictionRefused,
    GpusUnhealthy,
    GroupGone,
    GroupSeen,
    Leading,
    NodeGone,
    NodeSeen,
    PodGone,
    PodRef,
    PodSeen,
    PodsListed,
    QueueGone,
    QueueSeen,
    Refuse,
    ScalerGone,
    ScalerSeen,
    ScalersServed,
    Tick,
    Verdict,
    Wake,
)
from extender.engine.elastic.elastic import Elastic
from extender.engine.gangs.barrier import Barrier
from extender.engine.gangs.gangs import Gangs
from extender.engine.gangs.gates import Gates
from extender.engine.gangs.keeping import Keeping
from extender.engine.gangs.starts import Starts
from extender.engine.moves import errand
from extender.engine.moves.defrag import Defrag
from extender.engine.moves.errand import Errand
from extender.engine.moves.relief import Hopeless
from extender.engine.moves.tenants import Tenants
from extender.engine.observe import Observer
from extender.engine.placement import advice
from extender.engine.placement.index import Indexes
from extender.engine.placement.offers import Offers
from extender.engine.placement.waking import Waking
from extender.engine.placement.worth import Worth
from extender.engine.preemption.occupants import Occupants
from extender.engine.preemption.preempt import Preemption
from extender.engine.presence import Presence
from extender.engine.queues.runtimes import Runtimes
from extender.engine.queues.tenancy import Tenancy
from extender.engine.queues.turns import Turns
from extender.engine.settings import Settings
from extender.engine.telling import Telling
from gangfilter import dialects
from protos.contract import choose, names
from protos.contract.ask import PodAsk
from protos.contract.objects import Pod
from protos.contract.reason import Reason

WARM_NODES = 200
"""Nodes looked at per tick for shapes that will be asked soon."""
PREPARED_NODES = 100
"""Nodes looked at before the event loop goes on, divided by the containers of the pod that asks."""
COUNTED_NODES = 200
"""Nodes whose free GPUs are counted per tick."""


class Engine:
    """The one owner of the books."""

    def __init__(self, settings: Settings, started: float = 0.0, wall: float = 0.0) -> None:
        """`started`: the monotonic clock now; `wall`: what the wall clock (s since 1970) showed when that showed 0."""
        self.settings = settings
        self.started = started
        self.counters: Counter[tuple[str, str]] = Counter()
        """(what, label) → how often: decisions by code, conflicts, problems by kind, wakes."""
        self.ledger = Ledger(settings.unit_mib, settings.slices_per_gpu, settings.gpushare, self._changed)
        self._indexes = Indexes(self.ledger.nodes)
        self.classes = Classes(self.ledger.stock)
        self._offers = Offers(self.ledger.nodes, self._indexes, settings)
        self._observer = Observer(self.ledger, settings, self.counters, self.classes)
        self._waking = Waking(self.ledger)
        self._holds = Holds(self.ledger, settings.soft_charge_s, settings.undecided_s)
        self._presence = Presence()
        self._gates = Gates(self.ledger, self._indexes, self._waking, settings.nominate_from)
        self.tenancy = Tenancy(self.ledger, settings, self.classes.known)
        self.ledger.moved, self._waking.admits = self.tenancy.moved, self.tenancy.admits
        self.runtimes = Runtimes(lambda uid: self.gangs.of(uid))
        admission = self.tenancy.admission
        turns = Turns(admission.account, admission.standing, self.runtimes.of_gang)
        starts = Starts(self.ledger, self._indexes, settings, admission, turns)
        self._booking = Booking(self.ledger, starts, self._waking, settings, self.counters)
        self.gangs = Gangs(self.ledger, settings, self.counters, starts, self._booking.release, self._unpromise, wall)
        self._barrier = Barrier(self.gangs)
        self.tenants = Tenants(self.ledger.pods, self.ledger.on_node)
        self.reservations = Reservations(self.ledger, settings, wall)
        self.reservations.promise = self.tenancy.queues.promise
        self._keeping = Keeping(self.reservations, self.gangs, self._barrier, self.counters)
        self._occupants = Occupants(settings, wall)
        self.elastic = Elastic(self.ledger, self.gangs, self.tenants, admission, settings, self.counters, wall)
        self._preemption = Preemption(
            self.ledger,
            self.gangs,
            self._occupants,
            self.tenants,
            self.tenancy,
            self.reservations,
            self.elastic,
            settings,
            self.counters,
            wall,
        )
        self._telling = Telling(self.ledger, self._indexes, self.classes, self.gangs)
        self.worth = Worth(starts, self.tenants)
        self._effects: list[Effect] = []

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return self.ledger.nodes

    @property
    def pods(self) -> Mapping[str, PodState]:
        return self.ledger.pods

    def _changed(self, node: str, room: bool) -> None:
        self._indexes.stale(node)
        self.ledger.stock.changed(node)
        self.reservations.changed(node)
        if room:
            self._waking.room(node)

    # -- the world

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; returns what is to be done about it."""
        match event:
            case PodSeen(pod):
                self._see_pod(pod, now)
            case PodGone(uid):
                self._forget(uid, now)
            case PodsListed():
                self._presence.listed(now)
                self._indexes.scorer.look()
                self.gangs.replayed(now)
            case GroupSeen(kind, key, declaration, job):
                self.elastic.job(kind, key, job)
                self.gangs.declare(kind, key, declaration, now)
                self.tenancy.renamed(self.gangs.known.get(key))
            case GroupGone(kind, key):
                self.elastic.job(kind, key, None)
                self.gangs.declare(kind, key, None, now)
                self.tenancy.renamed(self.gangs.known.get(key))
            case ClassSeen(gpu_class):
                self._look_anew(self.classes.put(gpu_class), now)
            case ClassGone(name):
                self._look_anew(self.classes.drop(name), now)
            case QueueSeen(queue):
                self.tenancy.queues.put(queue)
            case QueueGone(source, name):
                self.tenancy.drop(source, name)
            case BudgetSeen(budget):
                self._preemption.budgets.put(budget)
            case BudgetGone(namespace, name):
                self._preemption.budgets.drop(namespace, name)
            case EvictionRefused(uid, why):
                self._effects += self._preemption.refused(uid, why, now)
            case ScalerSeen() | ScalerGone() | ScalersServed():
                self.elastic.see(event, now)
            case Leading(yes):
                self.elastic.lead(yes)
                self._preemption.lead(yes)
                self.classes.lead(yes)
                self.tenancy.lead(yes)
                self._gates.lead(yes)
                self.gangs.lead(yes, now)
            case BindLeft(uid):
                self.gangs.left(uid)
            case NodeSeen(node):
                if self._observer.node(node):
                    self.tenancy.node(node.metadata.name)
                    self.gangs.look_at(node.metadata.name, now)
            case NodeGone(name):
                self.ledger.drop_node(name)
                self.tenancy.node(name)
                self.gangs.look_at(name, now)
            case GpusUnhealthy(name, minors):
                self.ledger.set_unhealthy(name, minors)
                self.gangs.look_at(name, now)
            case BindDone(uid, outcome):
                self._bind_done(uid, outcome == "bound", now)
            case Tick():
                self._tick(now)
        self._effects += self._keeping.look(now, everything=isinstance(event, Tick))
        self._effects += self._preemption.look(event, now)
        return self.effects()

    def effects(self) -> list[Effect]:
        """What is to be done, told once."""
        found = self._effects + self.gangs.effects()
        self._effects = []
        return self._gates.passed(found)

    def _see_pod(self, pod: Pod, now: float) -> None:
        self._presence.seen(pod.metadata.uid)
        self._gates.see(pod)
        self.classes.see(pod)
        known = self.ledger.pods.get(pod.metadata.uid)
        if known is not None:
            self._reread(pod, known, wake=names.GPU_CLASS in pod.metadata.annotations)
        seen = self._observer.pod(pod, now)
        self._effects += seen.effects
        ours = not self.settings.schedulers or pod.spec.scheduler_name in self.settings.schedulers
        if seen.state is not None:
            self.tenancy.see(pod, seen.state, self.gangs.of(pod.metadata.uid), ours=ours)
        self.gangs.see(pod, seen.state, now)
        self.tenancy.join(pod.metadata.uid, self.gangs.of(pod.metadata.uid))
        self._effects += self.runtimes.see(pod)
        if seen.state is not None and not self.gangs.awaits(pod, seen.state):
            self._effects += self._gates.in_vain(seen.state.ref)
        if seen.state is not None:
            self._occupants.see(pod, now)
        self.tenants.see(pod, ours=ours and self.gangs.of(pod.metadata.uid) is None)
        self._effects += self.reservations.see(pod, seen.state if ours else None, now)
        if seen.state is None:
            self._end(pod.metadata.uid, now)
        elif seen.state.state == "bound":
            self._settle(seen.state)
        elif seen.state.ask is not None:
            self._indexes.warm(seen.state.shape)
        if known is None and seen.state is not None:
            self._note(seen.state)

    def _note(self, new: PodState) -> None:
        """What it asks counts in the mix."""
        if new.ask is not None:
            self._indexes.scorer.note(new.shape)

    def _look_anew(self, pods: Iterable[Pod], now: float) -> None:
        """The class of these pods is another one now; what has a node keeps what it has."""
        for pod in pods:
            self._see_pod(pod, now)

    def _reread(self, pod: Pod, state: PodState, *, wake: bool = False) -> None:
        """Take in whether the pod wants something else now; then `wake` brings it back if it was refused before."""
        if self._observer.asks_anew(pod, state):
            if wake and state.refusal is not None:
                self._effects.append(Wake(state.ref))
            self._holds.drop(state)
            self._waking.forget(state)
            self._observer.learn_anew(pod, state)

    def _forget(self, uid: str, now: float) -> None:
        """The pod is gone."""
        self.gangs.forget(uid, now)
        self._end(uid, now)

    def _end(self, uid: str, now: float) -> None:
        """The pod is over: it holds nothing any more."""
        self._gates.forget(uid)
        self.classes.forget(uid)
        self.tenants.forget(uid)
        self.tenancy.forget(uid)
        self.reservations.forget(uid)
        self._occupants.forget(uid)
        self._presence.ended(uid, now)
        pod = self.ledger.pods.get(uid)
        if pod is None:
            return
        self._settle(pod)
        self.ledger.unbind(pod)
        del self.ledger.pods[uid]
        self._telling.forget(uid)

    def _settle(self, pod: PodState) -> None:
        """The pod is no longer merely held, nor refused."""
        self._holds.settle(pod)
        self._waking.forget(pod)

    def _unpromise(self, pod: PodState) -> None:
        """The pod is not placed as a single one any more."""
        self._holds.drop(pod)
        self._waking.forget(pod)

    def _bind_done(self, uid: str, bound: bool, now: float) -> None:
        pod = self.ledger.pods.get(uid)
        if pod is not None and pod.state == "binding":
            if bound:
                pod.state = "bound"
            else:
                pod.allocation = pod.text = None
                self.ledger.unbind(pod)
        self.gangs.bind_done(uid, bound, now)

    def _tick(self, now: float) -> None:
        self._holds.expire(now)
        self._gates.seek(WARM_NODES)
        wakes = self._waking.due(lambda pod, node, charges: self._holds.put(pod, node, charges, now), now)
        self.tenancy.tick()
        wakes = [*map(self._gates.opening, wakes), *self._gates.due(now), *self.tenancy.due(now)]
        self._effects += wakes
        self.counters["wakes", ""] += len(wakes)
        self._indexes.scorer.look()
        self._indexes.work(WARM_NODES)
        self.gangs.tick(now)
        self._preemption.tick(now)
        self.ledger.stock.recount(self.ledger.takes_pods, COUNTED_NODES)
        self._effects += [*self.classes.news(), *self.tenancy.news(), *self.elastic.tick(now)]
        for uid in self._presence.lost(self._is_bound, now):
            self._forget(uid, now)

    def _is_bound(self, uid: str) -> bool:
        pod = self.ledger.pods.get(uid)
        return pod is not None and pod.state in ("binding", "bound")

    # -- kube-scheduler's questions

    def undecided(self, uid: str, now: float) -> bool:
        """Whether a pod other than this one was offered several nodes and its bind has not said which.

        A filter should wait for that bind (it comes within a cycle), else it would rank nodes by a guess.
        """
        return self._holds.undecided(uid, now)

    def think(self, now: float) -> bool:
        """Do a slice of planning; returns whether there is more to do. Effects may come of it."""
        learning = self._indexes.learn(WARM_NODES)
        more = self.gangs.work(now)
        searching, effects = self._preemption.work(now)
        growing, more_effects = self.elastic.work(now)
        self._effects += [*effects, *more_effects]
        return more or searching or growing or learning

    def defrag(self, namespace: str, name: str, most: int, kept: Collection[str] = ()) -> Errand | Hopeless | None:
        """A plan to be made of at most `most` moves for a pod or gang that waits; why none is needed, or None:

        there is no such one. Pods in `kept` (NAMESPACE/NAME) are not moved.
        """
        asked = errand.asked(self.ledger, self.gangs, self.tenants, namespace, name)
        if not isinstance(asked, errand.Asked):
            return asked
        void = self.reservations.keepers([seat.uid for seat in asked.seats])
        return Errand(asked, Defrag(self.gangs.starts.fleet, self.tenants, asked.seats, most, void, kept))

    def prepare(self, pod: Pod, now: float) -> bool:
        """Do a part of the work that a filter of this pod needs first; False when none is left.

        A shape of ask that is new costs a look at every node, which nobody else should have to wait for.
        """
        if self._barrier.prepare(pod.metadata.uid, now):
            return True
        if self.gangs.of(pod.metadata.uid) is not None and not self._barrier.single(pod.metadata.uid):
            return False
        state = self.ledger.pods.get(pod.metadata.uid)
        wanted = state.shape if state is not None else self._observer.shape(pod)
        containers = len(wanted.ask.containers) if wanted.ask else 1
        return self._indexes.prepare(wanted, max(1, PREPARED_NODES // containers))

    def concerns(self, pod: Pod) -> bool:
        """Whether a pod that will be bound without us matters all the same: a member of a gang that asks no GPUs."""
        return dialects.membership(pod) is not None and not self._observer.names_ours(pod)

    def hold_back(self, pod: Pod) -> Reason:
        """Why such a pod waits while nobody can say where it may go; it is woken once that is known."""
        self.gangs.refused(pod.metadata.uid)
        return refusals.NOT_READY

    def filter(self, pod: Pod, nodes: Sequence[str], now: float, *, unheld: bool = False) -> Verdict:
        """Which of these nodes the pod may go to, best first. `unheld`: its bind will not be asked of us."""
        self._holds.expire(now)
        self._effects += self._keeping.look(now)
        self.reservations.lend(pod.metadata.uid)
        verdict = self._verdict(pod, nodes, now, unheld=unheld)
        self._effects += self._keeping.look(now)
        return verdict

    def _verdict(self, pod: Pod, nodes: Sequence[str], now: float, *, unheld: bool) -> Verdict:
        if self._presence.over(pod.metadata.uid):
            return Verdict((), refusals.GONE)
        unseen = pod.metadata.uid not in self.ledger.pods
        state = self._observer.asked(pod, now)
        if unseen:
            self._presence.unseen(pod.metadata.uid, now)
            self._note(state)
            self.tenancy.see(pod, state, None, ours=True)
            self.gangs.see(pod, state, now)
            self.tenancy.join(pod.metadata.uid, self.gangs.of(pod.metadata.uid))
        state.filtered = True
        self._holds.drop(state)
        self._reread(pod, state)
        if state.state in ("binding", "bound"):
            here = state.node in nodes
            return Verdict((state.node,)) if here else self._refuse(state, refusals.ELSEWHERE, now)
        if isinstance(state.asked, Reason):
            return self._refuse(state, state.asked, now)
        if state.forged or names.ALLOCATION in pod.metadata.annotations:
            return self._refuse(state, refusals.FORGED, now)
        told = self._barrier.filter(pod, state, nodes, now, unheld=unheld)
        if isinstance(told, Verdict):
            return told
        if told is not None:
            self._waking.forget(state)
            state.refusal = told
            self.counters["decisions", told.code] += 1
            return Verdict((), told)
        full = self.tenancy.refused(state)
        if full is not None:
            return self._refuse(state, full, now)
        return self._offer(state, pod, nodes, now)

    def _offer(self, state: PodState, pod: Pod, nodes: Sequence[str], now: float) -> Verdict:
        offered = self._offers.of(state, pod, nodes, self.gangs.beside(state.ref.uid))
        if state.ask is None:
            return Verdict(offered)
        if not offered:
            reason = self._telling.no_gpu(state, state.ask)
            self._waking.refused(state, state.ask, reason, self.ledger.all_but(nodes))
            return self._refuse(state, reason, now)
        state.refusal = None
        self._waking.forget(state)
        self._charge(state, state.ask, offered, now)
        self.counters["decisions", "Offered"] += 1
        return Verdict(offered)

    def _charge(self, state: PodState, ask: PodAsk, offered: Sequence[str], now: float) -> None:
        books = self.ledger.nodes[offered[0]].books
        choice = choose.choose(ask, books) if books is not None else None
        self._holds.put(state, offered[0], choice.charges if choice else {}, now, several=len(offered) > 1)

    def _refuse(self, state: PodState, reason: Reason, now: float) -> Verdict:
        if reason.code not in refusals.FOR_ROOM:
            self._waking.forget(state)
            state.refusal = reason
        self.counters["decisions", reason.code] += 1
        self._effects += self._telling.report(state, reason, now)
        return Verdict((), reason)

    def explain(self, state: PodState) -> Reason | None:
        """Why the pod waits, with the numbers of this moment; None if it was not refused."""
        return self._telling.explain(state)

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> dict[str, int]:
        """10 for each node as good as our best, 0 for the rest."""
        state = self.ledger.pods.get(pod.metadata.uid)
        if state is None or (state.ask is None and dialect.has_preferences(pod)):
            return dict.fromkeys(nodes, 0)
        return advice.points(self.ledger, self._indexes, state, nodes, self.settings.band)

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Of kube-scheduler's candidates (node → victims' UIDs) those where the pod then really gets its GPUs.

        None for a member of a gang that has not started: it needs room for all of them. Nor such with a victim of
        another queue.
        """
        if not self._barrier.single(pod.metadata.uid):
            return {}

        def stays(uid: str) -> bool:
            return self.gangs.of(uid) is not None or not self.tenancy.queues.shared(uid, pod.metadata.uid)

        return advice.victims(self.ledger, self._observer.ask(pod), victims, stays)

    def bind(self, ref: PodRef, node: str, now: float, wall_ns: int = 0) -> BindAnswer:
        """Book the pod's GPUs on this node for good; the shell then POSTs the Binding and feeds BindDone.

        `wall_ns` is the wall clock in ns since 1970, which the gpushare dialect writes down.
        """
        self.reservations.lend(ref.uid)
        answer = self._bind(ref, node, now, wall_ns)
        self._effects += self._keeping.look(now)
        return answer

    def _bind(self, ref: PodRef, node: str, now: float, wall_ns: int) -> BindAnswer:
        pod = self.ledger.pods.get(ref.uid)
        if pod is None or not (pod.filtered or now - self.started < self.settings.unseen_bind_s):
            return self._refuse_bind(refusals.UNSEEN)
        if pod.state in ("binding", "bound"):
            if pod.node != node:
                return self._refuse_bind(refusals.ELSEWHERE)
            return Already() if pod.state == "bound" else self._booking.place(pod, node, wall_ns)
        if isinstance(pod.asked, Reason) or pod.forged:
            return self._refuse_bind(pod.asked if isinstance(pod.asked, Reason) else refusals.FORGED)
        answer = self._barrier.bind(pod, node, now)
        if answer is not None:
            return self._refuse_bind(answer.reason) if isinstance(answer, Refuse) else answer
        self._holds.drop(pod)
        full = self.tenancy.refused(pod)
        if full is not None:
            return self._refuse_bind(full)
        if not self._booking.choose(pod, node):
            return self._refuse_bind(refusals.TAKEN)
        return self._booking.book(pod, node, self.gangs.posted(ref.uid, node, now), wall_ns)

    def _refuse_bind(self, reason: Reason) -> Refuse:
        self.counters["decisions", reason.code] += 1
        if reason is refusals.TAKEN:
            self.counters["conflicts", ""] += 1
        return Refuse(reason)

    # -- soundness

    def check(self, nodes: Iterable[str] | None = None) -> list[str]:
        """What is wrong with the books of these nodes (None = all), in sentences; empty when they are sound."""
        return self.ledger.check(nodes)
