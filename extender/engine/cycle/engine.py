"""The engine takes events and returns effects, and answers kube-scheduler's questions from memory.

Steps stand in order in one place each: of an event in `Engine.step`, of a tick and of work between events in `upkeep`,
of filter in `filtering`, of bind in `binding`, of prioritize and preempt in `advice`. `listeners` says which components
take which event. `now` is in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from extender.engine.cycle.advice import Advice
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
from extender.engine.policies.whatif.question import Question
from extender.engine.policies.whatif.whatif import WhatIf
from extender.engine.state import audit, intree
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.seats import Seat
from extender.engine.types import refusals
from extender.engine.types.effects import BindAnswer, Effect, PodRef, Refuse, Requeue, Verdict
from extender.engine.types.events import Event, Tick
from extender.engine.types.settings import Settings
from extender.engine.types.subject import of_pod
from gangfilter import dialects
from gangfilter.group import GroupKey
from protos.contract.objects import Pod
from protos.contract.reason import Reason


class Engine:
    """Owns the components, and with them the books. Work for one object is guarded by the quarantine."""

    def __init__(self, settings: Settings, started: float = 0.0, wall: float = 0.0) -> None:
        """`started`: the monotonic clock now; `wall`: what the wall clock (s since 1970) showed when that showed 0.

        `WallMoved` corrects it later.
        """
        self.settings = settings
        self._components = components = Components(settings, wall)
        pods = Lifecycle(components)
        self._filtering, self._binding = Filtering(components, pods), Binding(components, started)
        self._advice, self._recovery = Advice(components), Recovery(components, pods)
        self._upkeep = Upkeep(components, pods, self._recovery)
        self._listeners = listeners(components, pods, self._upkeep)
        part = components.quarantine.part
        self._over_activator, self._over_preemption = part("reservations"), part("preemption")
        self._over_gates = part("gates")
        # read by other packages
        self.nodes: Mapping[str, NodeState] = components.ledger.nodes
        self.pods: Mapping[str, PodState] = components.ledger.pods
        self.counters, self.ledger, self.reservations = components.counters, components.ledger, components.reservations
        self.classes, self.tenancy, self.runtimes = components.classes, components.tenancy, components.runtimes
        self.gangs, self.elastic, self.movable_pods = components.gangs, components.elastic, components.movable_pods
        self.provisioning = components.provisioning
        self.worth, self.backfill, self.quarantine = components.worth, components.backfill, components.quarantine

    # -- events

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """One tick in parts, to be stepped in this order; other events may come between two parts."""
        return self._upkeep.ticks

    def step(self, event: Event, now: float) -> list[Effect]:
        """Take in one event; returns the effects to carry out.

        1. The components that listen to the event take it in, unless its object is quarantined and unchanged.
        2. Pods and gangs whose reservations are complete are requeued or started.
        3. Preemption reacts to the event.
        4. Objects over which an error occurred are quarantined.
        5. The effects are taken; requeues of gated pods remove the gate.
        """
        components = self._components
        quarantine = components.quarantine
        quarantine.now = now
        if not quarantine or self._recovery.takes(event, now):
            self._listeners.tell(event, now)
        with self._over_activator:
            components.activator.look(now, tick=isinstance(event, Tick) and event.last)
        with self._over_preemption:
            components.preemption.look(event, now)
        self._recovered(now, event)
        return self.effects()

    def run_slice(self, now: float) -> bool:
        """Do a slice of planning; returns whether there is more to do. Effects may come of it."""
        more = self._upkeep.run_slice(now)
        self._recovered(now)
        return more

    def effects(self) -> list[Effect]:
        """The effects since the last call."""
        components = self._components
        effects = components.outbox.taken()
        if effects:
            with self._over_gates:
                effects = components.gates.passed(map(components.running_pods.in_time, effects))
            components.counters["pod_requeues", ""] += sum(isinstance(effect, Requeue) for effect in effects)
        return effects

    def _recovered(self, now: float, event: Event | None = None) -> None:
        """Quarantine the objects over which an error has just occurred."""
        if self._components.quarantine:
            self._recovery.settle(now, event)

    # -- kube-scheduler's questions

    def undecided(self, uid: str, now: float) -> bool:
        """Whether another pod was offered several nodes and its bind has not yet come.

        A filter should wait for that bind, which comes within a cycle; else it would rank nodes by a guess.
        """
        return self._components.holds.undecided(uid, now)

    def prepare(self, pod: Pod, nodes: Sequence[str], now: float) -> bool:
        """Do a part of the work that must precede filter of this pod and these nodes; returns whether there is more."""
        self._components.quarantine.now = now
        more = False
        with self._components.quarantine.over(of_pod(pod.metadata.uid), "filter"):
            more = self._filtering.prepare(pod, nodes, now)
        self._recovered(now)
        return more

    def filter(self, pod: Pod, nodes: Sequence[str], now: float, *, unheld: bool = False) -> Verdict:
        """Which of these nodes the pod may go to, best first. `unheld`: kube-scheduler binds it without asking us."""
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
        if state is not None and (state.ask is not None or not intree.has_preferences(pod)):
            with self._components.quarantine.over(state.subject, "prioritize"):
                return self._advice.prioritize(state, nodes)
        return dict.fromkeys(nodes, 0)

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The candidates of kube-scheduler (node → victims' UIDs) that would really give the pod its GPUs."""
        with self._components.quarantine.over(of_pod(pod.metadata.uid), "preempt"):
            return self._advice.preempt(pod, victims)
        return {}

    def bind(self, ref: PodRef, node: str, now: float, wall_ns: int = 0) -> BindAnswer:
        """Book the pod's GPUs on this node; the caller then POSTs the Binding and reports BindDone.

        `wall_ns` is the wall clock in ns since 1970, for the annotations of gpushare.
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

    # -- externally bound pods

    def concerns(self, pod: Pod) -> bool:
        """Whether an externally bound pod concerns us: a member of a gang without GPU requests."""
        return dialects.membership(pod) is not None and not self._components.observer.names_ours(pod)

    def hold_back(self, pod: Pod) -> Reason:
        """Why such a pod waits while the cluster is not yet known; it is requeued afterwards."""
        self._components.barrier.refused(pod.metadata.uid)
        return refusals.NOT_READY

    # -- questions of people

    def explain(self, state: PodState) -> Reason:
        """Why the pending pod waits, with current numbers."""
        reasons = self._components.pending_reasons
        return self.set_aside(state) or reasons.explain(state) or reasons.unasked(state)

    def set_aside(self, state: PodState) -> Reason | None:
        """Why the pod is quarantined, None if it is not."""
        subject = state.subject
        return self.quarantine.why(subject) if subject in self.quarantine else None

    def defrag(
        self, pod: PodState | None, key: GroupKey, most: int, kept: Collection[str] = ()
    ) -> DefragRequest | NoPlan | None:
        """The request of a plan of at most `most` moves for a pending pod, or for the gang `key` if `pod` is None.

        Else the reason for which none is needed; None if there is no such pod or gang. Pods in `kept` (NAMESPACE/NAME)
        are not moved.
        """
        asked = request.asked(self.gangs, pod, key)
        if not isinstance(asked, request.Asked):
            return asked

        def plan(seats: Sequence[Seat]) -> Defrag:
            void = self.reservations.keepers([seat.uid for seat in seats])
            return Defrag(self.gangs.planner.view, self.movable_pods, seats, most, void, kept)

        view, never = self.gangs.planner.view, self._components.cannot_fit.of
        return DefragRequest(asked, self.ledger.pods, view, never, plan)

    def what_if(self, question: Question, now: float) -> WhatIf:
        """The answer in the making to what would become of pods that do not exist."""
        return WhatIf(self._components.what_if, self._components.observer, question, now)

    def check(self, nodes: Iterable[str] | None = None) -> list[str]:
        """The errors in the books of these nodes (None: of all), in sentences; empty if the books are sound."""
        return audit.wrong(self.ledger, nodes)
