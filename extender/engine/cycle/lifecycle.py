"""Leads a pod through the components: from its first sight, by our watch or by kube-scheduler, to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from extender.engine.cycle.components import Components
from extender.engine.state.pod_info import UNREAD
from extender.engine.state.pod_state import Change, PodState
from extender.engine.state.quarantine import MOST
from extender.engine.types import refusals
from extender.engine.types.effects import Requeue
from extender.engine.types.subject import Subject, of_pod
from protos.contract import mistakes, names
from protos.contract.isolation import Demanded
from protos.contract.objects import Pod


class Lifecycle:
    """Passes each pod to the components that keep something about it, and has them forget it."""

    def __init__(self, components: Components) -> None:
        self._components, self._outbox = components, components.outbox
        self._ledger, self._indexes, self._observer = components.ledger, components.indexes, components.observer
        self._gangs, self._tenancy, self._presence = components.gangs, components.tenancy, components.presence
        self._holds, self._waking, self._gates = components.holds, components.waking, components.gates
        self._quarantine = components.quarantine
        self._forget: tuple[Callable[[str], object], ...] = (
            lambda uid: self._with_pod(uid, self._holds.drop),  # first: it changes the books, by which the queue counts
            lambda uid: self._with_pod(uid, self._waking.forget),
            components.gates.forget,
            components.classes.forget,
            components.tenancy.forget,
            components.running_pods.forget,
            components.nominations.forget,
            components.pending_reasons.forget,
        )
        """Makes each component but the books and the gangs forget a pod."""
        self.unforgotten: dict[Subject, None] = {}
        """Deleted pods and nodes that a component failed to forget."""

    # -- a pod is seen

    def see(self, pod: Pod, now: float) -> None:
        """Take in a pod from the watch."""
        components, uid = self._components, pod.metadata.uid
        self._presence.seen(uid)
        components.classes.see(pod)
        known = self._ledger.pods.get(uid)
        first = known is None or known.info is UNREAD
        if known is not None:
            self.reread(pod, known, wake=names.GPU_CLASS in pod.metadata.annotations)
        state = self._observer.pod(pod, now)
        if state is not None:
            components.running_pods.see(pod, state, now)
        self._join(pod, state, now)
        components.runtimes.see(pod, first=first)
        if state is None:
            self._end(uid, now)
            return
        self._gates.see(state, waits=self._gangs.observer.awaits(state))
        components.reservations.see(pod, state, now)
        components.nominations.see(state, now)
        if state.state == "bound":
            self._holds.settle(state)
            self._waking.forget(state)
            components.resizes.see(pod, state)
        elif state.ask is not None:
            self._indexes.warm(state.shape)
        if known is None:
            self._note(state)
        if first:
            self._warn(pod, state, now)

    def _warn(self, pod: Pod, state: PodState, now: float) -> None:
        """Report a key that we do not read: kube-scheduler may never ask about the pod.

        To a pod that another scheduler places, only keys of our domain say that it should be ours.
        """
        schedulers, mistake = self._components.settings.scheduler_names, state.mistake
        served = pod.spec.scheduler_name in schedulers
        if not served and (pod.spec.node_name or not mistakes.names_us(pod)):
            return
        if mistake is None and schedulers and not served:
            numbers = f"write schedulerName: {schedulers[0]}"
            mistake = refusals.other_scheduler(pod.spec.scheduler_name, numbers)
        if mistake is not None:
            self._components.pending_reasons.warn(state, mistake, now)

    def class_changed(self, pods: Iterable[Pod], now: float) -> None:
        """The GpuClass of these pods has changed; pods with a node keep their GPUs."""
        self._quarantine.each(pods, lambda pod: of_pod(pod.metadata.uid), "class", lambda pod: self.see(pod, now))

    def set_default(self, namespace: str, demanded: Demanded | None, now: float) -> None:
        """What pods of the namespace demand that say nothing of isolation; pods with a node keep their GPUs."""
        if not self._components.isolation_defaults.put(namespace, demanded):
            return
        pending = [pod for pod in self._components.running_pods.pending.values() if pod.ref.namespace == namespace]
        self._quarantine.each(pending, lambda pod: pod.subject, "isolation", lambda pod: self._demand_anew(pod, now))

    def _demand_anew(self, pod: PodState, now: float) -> None:
        asked = self._observer.with_defaults(pod)
        if asked == pod.asked or pod.state not in ("waiting", "held"):
            return
        self._let_go(pod, wake=True)
        pod.asked, pod.refusal = asked, None
        self._tenancy.moved(pod)
        self._components.reservations.asks_anew(pod.ref.uid, now)
        self._gangs.observer.asks_anew(pod, now)
        self._indexes.warm(pod.shape)

    def asked_for(self, pod: Pod, now: float) -> PodState:
        """The record of a pod in a question of kube-scheduler; our watch may not have shown the pod yet."""
        unseen = pod.metadata.uid not in self._ledger.pods
        state = self._observer.asked(pod, now)
        if unseen:
            self._presence.unseen(pod.metadata.uid, now)
            self._note(state)
            self._components.running_pods.asked(pod, state, now)
            self._join(pod, state, now)
            self._components.runtimes.see(pod, first=True)
        return state

    def reread(self, pod: Pod, state: PodState, *, wake: bool = False) -> None:
        """Update what a pod requests; if that has changed, `wake` requeues a refused pod."""
        if self._observer.asks_anew(pod, state):
            self._let_go(state, wake=wake)
            self._observer.learn_anew(pod, state)

    def _let_go(self, state: PodState, *, wake: bool) -> None:
        """The pod's request has changed: drop what was held for the former one."""
        if wake and state.refusal is not None:
            self._outbox.put(Requeue(state.ref))
        self._holds.drop(state)
        self._waking.forget(state)

    def _join(self, pod: Pod, state: PodState | None, now: float) -> None:
        """Update the pod's gang and queue."""
        uid = pod.metadata.uid
        stays = self._tenancy.stays(uid)
        if state is not None:
            self._tenancy.see(state, state.info, self._gangs.roster.of(uid))
        self._gangs.observer.see(pod, state, now)
        known = self._gangs.roster.of(uid)
        if stays:
            self._tenancy.renamed(known)
        else:
            self._tenancy.join(uid, known)

    def _note(self, new: PodState) -> None:
        """Count the pod's request in the mix of requests."""
        if new.ask is not None:
            self._indexes.scorer.note(new.shape)

    # -- a pod is bound

    def bind_done(self, uid: str, now: float, *, bound: bool) -> None:
        """Take in the outcome of a pod's Binding."""
        pod = self._ledger.pods.get(uid)
        if pod is not None and pod.state == "binding":
            self.settle_binding(pod, bound=bound)
        self._components.barrier.bind_done(uid, bound, now)
        if pod is not None and not bound:
            self._catch_up(pod, now)

    def _catch_up(self, pod: PodState, now: float) -> None:
        """Apply changes of the pod's GpuClass and of its namespace's default that came during its Binding."""
        self.class_changed(self._components.classes.of(pod.ref.uid), now)
        self._quarantine.each((pod,), lambda pod: pod.subject, "isolation", lambda pod: self._demand_anew(pod, now))

    def settle_binding(self, pod: PodState, *, bound: bool) -> None:
        """In the books, the pod keeps what was booked for it, or loses it."""
        if bound:
            pod.move(Change.WRITTEN)
        else:
            self._ledger.unbook(pod)

    # -- a pod is gone

    def forget(self, uid: str, now: float) -> None:
        """Forget a deleted pod."""
        self._gangs.observer.forget(uid, now)
        self._end(uid, now)

    def forget_lost(self, now: float) -> None:
        """Forget pods that kube-scheduler asked about and that the watch never showed."""
        for uid in self._presence.lost(self._is_bound, now):
            self._quarantine.forget(of_pod(uid))
            self.forget_anyway(uid, now)

    def _is_bound(self, uid: str) -> bool:
        pod = self._ledger.pods.get(uid)
        return pod is not None and pod.state in ("binding", "bound")

    def _end(self, uid: str, now: float) -> None:
        """The pod has ended: it holds nothing."""
        for forget in self._forget:
            forget(uid)
        self._components.reservations.forget(uid, now)
        self._presence.ended(uid, now)
        self._leave_books(uid)

    def forget_anyway(self, uid: str, now: float) -> None:
        """Forget a deleted pod even if components fail to."""
        whole = self._quarantine.each((uid,), of_pod, "end", lambda uid: self._gangs.observer.forget(uid, now))
        whole &= self._vanish(uid, now)
        self._presence.ended(uid, now)
        self._quarantine.each((uid,), of_pod, "end", self._leave_books)
        left = self._ledger.pods.pop(uid, None)
        if left is not None and left.node in self._ledger.nodes:  # an error came in between
            self._ledger.rebuild(left.node)
        if not whole and len(self.unforgotten) < MOST:
            self.unforgotten[of_pod(uid)] = None

    def _vanish(self, uid: str, now: float) -> bool:
        """Make all components but the books and the gangs forget the pod; returns whether none failed."""
        reservations = self._components.reservations
        steps: tuple[Callable[[str], object], ...] = (*self._forget, lambda uid: reservations.forget(uid, now))
        return self._quarantine.each(steps, lambda _: of_pod(uid), "end", lambda forget: forget(uid))

    def _with_pod(self, uid: str, work: Callable[[PodState], None]) -> None:
        pod = self._ledger.pods.get(uid)
        if pod is not None:
            work(pod)

    def _leave_books(self, uid: str) -> None:
        pod = self._ledger.pods.get(uid)
        if pod is not None:
            pod.queue = None  # so that the callback of the books counts it in no queue
            self._ledger.unbind(pod)
            del self._ledger.pods[uid]

    # -- a pod is quarantined

    def set_aside(self, uid: str, pod: Pod | None, now: float) -> None:
        """Quarantine a pod: it keeps what it holds, and only the books, its queue and its gang know it.

        `pod` is the object that the watch has just shown, if any.
        """
        state, read = self._ledger.pods.get(uid), False
        self._vanish(uid, now)
        if state is not None:
            state.learned = False
        if pod is not None:
            with self._quarantine.over(of_pod(uid), "recovery"):
                state, read = self._observer.pod(pod, now), True
        if read and state is None:
            self.forget_anyway(uid, now)
        elif state is not None:
            with self._quarantine.over(of_pod(uid), "recovery"):
                self._tenancy.moved(state)  # in its former queue while the pod cannot be read
                if pod is not None:
                    said = self._components.running_pods.read(pod, state, now)
                    self._tenancy.see(state, said, self._gangs.roster.of(uid))

    def see_again(self, pod: Pod, now: float) -> None:
        """Take in a quarantined pod like a new one; a pod with a node stays booked until it is read."""
        uid = pod.metadata.uid
        self._vanish(uid, now)  # again: no component may keep what the books forget here
        if not self._is_bound(uid):
            self._leave_books(uid)
        self.see(pod, now)
