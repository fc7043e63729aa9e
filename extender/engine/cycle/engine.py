"""Every decision of the extender: events of the world in, effects out; kube-scheduler's questions answered.

`step(event, now)` takes what the watches tell and returns what to do; `filter`, `prioritize`, `preempt` and `bind`
answer from memory. `now` is in seconds of a monotonic clock. What there is to decide is decided in the `components`;
`listeners` says which of them hears of which event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from extender.engine.cycle import advice
from extender.engine.cycle.binding import Binding
from extender.engine.cycle.components import Components
from extender.engine.cycle.filtering import Filtering
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.cycle.listeners import listeners
from extender.engine.cycle.recovery import Recovery
from extender.engine.cycle.upkeep import Upkeep
from extender.engine.planning.defrag_plan import NoPlan
from extender.engine.policies.defrag import request
from extender.engine.policies.defrag.defrag import Defrag
from extender.engine.policies.defrag.request import DefragRequest
from extender.engine.state import audit, dialect
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from extender.engine.types.effects import BindAnswer, Effect, PodRef, Refuse, Verdict
from extender.engine.types.events import Event, Tick
from extender.engine.types.settings import Settings
from extender.engine.types.subject import of_pod
from gangfilter import dialects
from gangfilter.group import GroupKey
from protos.contract.objects import Pod
from protos.contract.reason import Reason


class Engine:
    """The one owner of the books."""

    def __init__(self, settings: Settings, started: float = 0.0, wall: float = 0.0) -> None:
        """`started`: the monotonic clock now; `wall`: what the wall clock (s since 1970) showed when that showed 0.

        `WallMoved` tells of it later on.
        """
        self.settings = settings
        self._components = components = Components(settings, wall)
        pods = Lifecycle(components)
        self._filtering, self._binding = Filtering(components, pods), Binding(components, started)
        self._recovery = Recovery(components, pods)
        over = components.quarantine.part
        self._over_activator, self._over_preemption, self._over_gates = (
            over("reservations"),
            over("preemption"),
            over("gates"),
        )
        self._upkeep = Upkeep(components, pods, self._recovery)
        self._listeners = listeners(components, pods, self._upkeep)
        # what others look at
        self.counters, self.ledger, self.reservations = components.counters, components.ledger, components.reservations
        self.classes, self.tenancy, self.runtimes = components.classes, components.tenancy, components.runtimes
        self.gangs, self.elastic, self.movable_pods, self.worth = (
            components.gangs,
            components.elastic,
            components.movable_pods,
            components.worth,
        )
        self.backfill, self.quarantine = components.backfill, components.quarantine

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return self.ledger.nodes

    @property
    def pods(self) -> Mapping[str, PodState]:
        return self.ledger.pods

    # -- the world

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """One tick in parts, to be told in this order; between two of them other things may happen."""
        return self._upkeep.ticks

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; returns what is to be done about it."""
        components = self._components
        quarantine = components.quarantine
        quarantine.now = now
        if not quarantine or self._recovery.takes(event, now):
            self._listeners.tell(event, now)
        with self._over_activator:
            components.effects += components.activator.look(now, tick=isinstance(event, Tick) and event.last)
        with self._over_preemption:
            components.effects += components.preemption.look(event, now)
        if quarantine:
            self._recovery.settle(now, event)
        return self.effects()

    def run_slice(self, now: float) -> bool:
        """Do a slice of planning; returns whether there is more to do. Effects may come of it."""
        more = self._upkeep.run_slice(now)
        self._recovered(now)
        return more

    def effects(self) -> list[Effect]:
        """What is to be done, told once."""
        found = self._components.effects + self.gangs.reporter.taken()
        if not found:
            return found
        self._components.effects.clear()
        with self._over_gates:
            return self._components.gates.passed(map(self._components.running_pods.in_time, found))
        return found

    def _recovered(self, now: float) -> None:
        """Set aside what something went wrong with just now."""
        if self._components.quarantine:
            self._recovery.settle(now)

    # -- kube-scheduler's questions

    def undecided(self, uid: str, now: float) -> bool:
        """Whether a pod other than this one was offered several nodes and its bind has not said which.

        A filter should wait for that bind (it comes within a cycle), else it would rank nodes by a guess.
        """
        return self._components.holds.undecided(uid, now)

    def prepare(self, pod: Pod, now: float) -> bool:
        """Do a part of the work that a filter of this pod needs first; False when none is left."""
        self._components.quarantine.now = now
        more = False
        with self._components.quarantine.over(of_pod(pod.metadata.uid), "filter"):
            more = self._filtering.prepare(pod, now)
        self._recovered(now)
        return more

    def filter(self, pod: Pod, nodes: Sequence[str], now: float, *, unheld: bool = False) -> Verdict:
        """Which of these nodes the pod may go to, best first. `unheld`: its bind will not be asked of us."""
        self._components.quarantine.now = now
        verdict = Verdict((), refusals.SET_ASIDE)
        if not self._components.quarantine or self._recovery.may_ask(pod, now):
            with self._components.quarantine.over(of_pod(pod.metadata.uid), "filter"):
                verdict = self._filtering.filter(pod, nodes, now, unheld=unheld)
        self._recovered(now)
        return verdict

    def prioritize(self, pod: Pod, nodes: Sequence[str]) -> dict[str, int]:
        """10 for each node as good as our best, 0 for the rest."""
        state = self.pods.get(pod.metadata.uid)
        if state is not None and (state.ask is not None or not dialect.has_preferences(pod)):
            with self._components.quarantine.over(state.subject, "prioritize"):
                return advice.points(self.ledger, self._components.indexes, state, nodes, self.settings.score_tolerance)
        return dict.fromkeys(nodes, 0)

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Of kube-scheduler's candidates (node → victims' UIDs) those where the pod then really gets its GPUs.

        None for a member of a gang that has not started: it needs room for all of them. Nor such with a victim of
        another queue.
        """
        if not self._components.barrier.single(pod.metadata.uid):
            return {}

        queues = self.tenancy.queues
        mine = queues.of(pod.metadata.uid)

        def stays(uid: str) -> bool:
            theirs = queues.of(uid)
            same = mine is None or theirs is None or queues.at(mine) is queues.at(theirs)
            return self.gangs.roster.of(uid) is not None or not same

        with self._components.quarantine.over(of_pod(pod.metadata.uid), "preempt"):
            return advice.victims(self.ledger, self._components.observer.ask(pod), victims, stays)
        return {}

    def bind(self, ref: PodRef, node: str, now: float, wall_ns: int = 0) -> BindAnswer:
        """Book the pod's GPUs on this node for good; the shell then POSTs the Binding and feeds BindDone.

        `wall_ns` is the wall clock in ns since 1970, which the gpushare dialect writes down.
        """
        quarantine, subject = self._components.quarantine, of_pod(ref.uid)
        quarantine.now = now
        if quarantine and subject in quarantine:
            return Refuse(refusals.SET_ASIDE)
        answer: BindAnswer = Refuse(refusals.SET_ASIDE)
        before = self._recovery.is_binding(ref.uid)
        with quarantine.over(subject, "bind"):
            answer = self._binding.bind(ref, node, now, wall_ns)
        if isinstance(answer, Refuse) and not before:
            answer = self._recovery.unbind(ref.uid) or answer
        self._recovered(now)
        return answer

    # -- pods that are bound without us

    def concerns(self, pod: Pod) -> bool:
        """Whether a pod that will be bound without us matters all the same: a member of a gang that asks no GPUs."""
        return dialects.membership(pod) is not None and not self._components.observer.names_ours(pod)

    def hold_back(self, pod: Pod) -> Reason:
        """Why such a pod waits while nobody can say where it may go; it is woken once that is known."""
        self._components.barrier.refused(pod.metadata.uid)
        return refusals.NOT_READY

    # -- people's questions

    def explain(self, state: PodState) -> Reason | None:
        """Why the pod waits, with the numbers of this moment; None if it was not refused."""
        return self.set_aside(state) or self._components.pending_reasons.explain(state)

    def set_aside(self, state: PodState) -> Reason | None:
        """Why nobody works for the pod, if that is so after an error of ours; None of all others."""
        subject = state.subject
        return self.quarantine.why(subject) if subject in self.quarantine else None

    def defrag(
        self, pod: PodState | None, key: GroupKey, most: int, kept: Collection[str] = ()
    ) -> DefragRequest | NoPlan | None:
        """A plan to be made of at most `most` moves for a pod that waits, without one for the gang of this name.

        Why none is needed, or None: there is no such one. Pods in `kept` (NAMESPACE/NAME) are not moved.
        """
        asked = request.asked(self.gangs, pod, key)
        if not isinstance(asked, request.Asked):
            return asked

        def plan(seats: Sequence[Seat]) -> Defrag:
            void = self.reservations.keepers([seat.uid for seat in seats])
            return Defrag(self.gangs.planner.view, self.movable_pods, seats, most, void, kept)

        return DefragRequest(asked, self.ledger.pods, plan)

    def check(self, nodes: Iterable[str] | None = None) -> list[str]:
        """What is wrong with the books of these nodes (None = all), in sentences; empty when they are sound."""
        return audit.wrong(self.ledger, nodes)
