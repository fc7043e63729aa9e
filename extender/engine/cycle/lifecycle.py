"""A pod's way through the parts: from its first sight, by our watch or by kube-scheduler, to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from extender.engine.cycle.components import Components
from extender.engine.state.pod_info import UNREAD
from extender.engine.state.pod_state import Change, PodState
from extender.engine.state.quarantine import MOST
from extender.engine.types.effects import Requeue
from extender.engine.types.subject import of_pod
from protos.contract import names
from protos.contract.objects import Pod


class Lifecycle:
    """Tells each part what it has to know of a pod."""

    def __init__(self, components: Components) -> None:
        self._components, self._effects = components, components.effects
        self._ledger, self._indexes, self._observer = components.ledger, components.indexes, components.observer
        self._gangs, self._tenancy, self._presence = components.gangs, components.tenancy, components.presence
        self._holds, self._waking, self._gates = components.holds, components.waking, components.gates
        self._quarantine = components.quarantine
        self._forget: tuple[Callable[[str], object], ...] = (
            self._unhold,
            self._unwait,
            components.gates.forget,
            components.classes.forget,
            components.tenancy.forget,
            components.running_pods.forget,
        )
        """Each has one part know nothing of a pod any more; the books and its gang are left.

        First what changes the books: its queue counts what they tell.
        """
        self.unforgotten: dict[str, None] = {}
        """Pods that are gone, and that some part could not forget."""

    # -- it comes

    def see(self, pod: Pod, now: float) -> None:
        """The watch shows a pod."""
        components, uid = self._components, pod.metadata.uid
        self._presence.seen(uid)
        components.classes.see(pod)
        known = self._ledger.pods.get(uid)
        first = known is None or known.info is UNREAD
        if known is not None:
            self.reread(pod, known, wake=names.GPU_CLASS in pod.metadata.annotations)
        seen = self._observer.pod(pod, now)
        state = seen.state
        self._effects += seen.effects
        if state is not None:
            components.running_pods.see(pod, state, now)
        self._join(pod, state, now)
        self._effects += components.runtimes.see(pod, first=first)
        if state is None:
            self._end(uid, now)
            return
        self._effects += self._gates.see(state, waits=self._gangs.observer.awaits(state))
        self._effects += components.reservations.see(pod, state, now)
        if state.state == "bound":
            self._settle(state)
        elif state.ask is not None:
            self._indexes.warm(state.shape)
        if known is None:
            self._note(state)

    def see_anew(self, pods: Iterable[Pod], now: float) -> None:
        """The class of these pods is another one now; what has a node keeps what it has."""
        self._quarantine.each(pods, lambda pod: of_pod(pod.metadata.uid), "class", lambda pod: self.see(pod, now))

    def asked_for(self, pod: Pod, now: float) -> PodState:
        """kube-scheduler asks for a pod, which our watch may not have shown yet."""
        unseen = pod.metadata.uid not in self._ledger.pods
        state = self._observer.asked(pod, now)
        if unseen:
            self._presence.unseen(pod.metadata.uid, now)
            self._note(state)
            self._components.running_pods.asked(pod, state, now)
            self._join(pod, state, now)
            self._effects += self._components.runtimes.see(pod, first=True)
        return state

    def reread(self, pod: Pod, state: PodState, *, wake: bool = False) -> None:
        """Take in whether the pod wants something else now; then `wake` brings it back if it was refused before."""
        if self._observer.asks_anew(pod, state):
            if wake and state.refusal is not None:
                self._effects.append(Requeue(state.ref))
            self._holds.drop(state)
            self._waking.forget(state)
            self._observer.learn_anew(pod, state)

    def _join(self, pod: Pod, state: PodState | None, now: float) -> None:
        """Its queue and its gang."""
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
        """What it asks counts in the mix."""
        if new.ask is not None:
            self._indexes.scorer.note(new.shape)

    def _settle(self, pod: PodState) -> None:
        """The pod is no longer merely held, nor refused."""
        self._holds.settle(pod)
        self._waking.forget(pod)

    # -- it is bound

    def bind_done(self, uid: str, now: float, *, bound: bool) -> None:
        """How the Binding of a pod went."""
        pod = self._ledger.pods.get(uid)
        if pod is not None and pod.state == "binding":
            self.settle_binding(pod, bound=bound)
        self._components.barrier.bind_done(uid, bound, now)

    def settle_binding(self, pod: PodState, *, bound: bool) -> None:
        """In the books: it has what was booked for it, or nothing."""
        if bound:
            pod.move(Change.WRITTEN)
        else:
            self._ledger.unbook(pod)

    # -- it goes

    def forget(self, uid: str, now: float) -> None:
        """The pod is gone."""
        self._gangs.observer.forget(uid, now)
        self._end(uid, now)

    def forget_lost(self, now: float) -> None:
        """Those are gone in which nobody should believe any more."""
        for uid in self._presence.lost(self._is_bound, now):
            self._quarantine.forget(of_pod(uid))
            self.forget_anyway(uid, now)

    def _is_bound(self, uid: str) -> bool:
        pod = self._ledger.pods.get(uid)
        return pod is not None and pod.state in ("binding", "bound")

    def _end(self, uid: str, now: float) -> None:
        """The pod is over: it holds nothing any more."""
        for forget in self._forget:
            forget(uid)
        self._components.reservations.forget(uid, now)
        self._presence.ended(uid, now)
        self._leave_books(uid)

    def forget_anyway(self, uid: str, now: float) -> None:
        """The pod is gone, whatever one of the parts meets in forgetting it."""
        whole = self._quarantine.each((uid,), of_pod, "end", lambda uid: self._gangs.observer.forget(uid, now))
        whole &= self._vanish(uid, now)
        self._presence.ended(uid, now)
        self._quarantine.each((uid,), of_pod, "end", self._leave_books)
        left = self._ledger.pods.pop(uid, None)
        if left is not None and left.node in self._ledger.nodes:  # an error came in between
            self._ledger.rebuild(left.node)
        if not whole and len(self.unforgotten) < MOST:
            self.unforgotten[uid] = None

    def forget_again(self, now: float) -> None:
        """Forget those that are gone where that failed."""
        for uid in list(self.unforgotten):
            del self.unforgotten[uid]
            if uid not in self._ledger.pods:  # it has not come back
                self._quarantine.forget(of_pod(uid))
                self.forget_anyway(uid, now)

    def _vanish(self, uid: str, now: float) -> bool:
        """No part but the books and its gang knows of the pod any more, whatever one of them meets in forgetting it.

        Returns whether none met anything.
        """
        whole = self._quarantine.each(self._forget, lambda _: of_pod(uid), "end", lambda forget: forget(uid))
        whole &= self._quarantine.each(
            (uid,), of_pod, "end", lambda uid: self._components.reservations.forget(uid, now)
        )
        return whole

    def _unhold(self, uid: str) -> None:
        """Nothing is promised to the pod."""
        pod = self._ledger.pods.get(uid)
        if pod is not None:
            self._holds.drop(pod)

    def _unwait(self, uid: str) -> None:
        """The pod does not wait for room."""
        pod = self._ledger.pods.get(uid)
        if pod is not None:
            self._waking.forget(pod)

    def _leave_books(self, uid: str) -> None:
        pod = self._ledger.pods.get(uid)
        if pod is not None:
            pod.queue = None  # it does not count any more, wherever the books say that it moved
            self._ledger.unbind(pod)
            del self._ledger.pods[uid]

    # -- it is set aside

    def set_aside(self, uid: str, pod: Pod | None, now: float) -> None:
        """Only the books, its queue and its gang know of the pod until it is taken in anew: it keeps what it holds.

        `pod` is what the watch has just shown, None if that is not at hand.
        """
        state, read = self._ledger.pods.get(uid), False
        self._vanish(uid, now)
        if state is not None:
            state.learned = False
        if pod is not None:
            with self._quarantine.over(of_pod(uid), "recovery"):
                state, read = self._observer.pod(pod, now).state, True
        if read and state is None:
            self.forget_anyway(uid, now)
        elif state is not None:
            with self._quarantine.over(of_pod(uid), "recovery"):
                self._tenancy.moved(state)  # in its former queue, as long as the pod cannot be read
                if pod is not None:
                    said = self._components.running_pods.read(pod, state, now)
                    self._tenancy.see(state, said, self._gangs.roster.of(uid))

    def see_again(self, pod: Pod, now: float) -> None:
        """Take in a pod that was set aside as one that is new; one with a node stays booked until it is read."""
        uid = pod.metadata.uid
        self._vanish(uid, now)  # once more: nobody may go on with what the books forget here
        if not self._is_bound(uid):
            self._leave_books(uid)
        self.see(pod, now)
