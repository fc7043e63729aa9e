"""A pod's way through the parts: from its first sight, by our watch or by kube-scheduler, to its end."""

from __future__ import annotations

from collections.abc import Iterable

from extender.engine.books.ledger import PodState
from extender.engine.effects import Wake
from extender.engine.parts import Parts
from protos.contract import names
from protos.contract.objects import Pod


class Lifecycle:
    """Tells each part what it has to know of a pod."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._effects = parts, parts.effects
        self._ledger, self._indexes, self._observer = parts.ledger, parts.indexes, parts.observer
        self._gangs, self._tenancy, self._presence = parts.gangs, parts.tenancy, parts.presence
        self._holds, self._waking, self._gates = parts.holds, parts.waking, parts.gates

    # -- it comes

    def see(self, pod: Pod, now: float) -> None:
        """The watch shows a pod."""
        parts, uid = self._parts, pod.metadata.uid
        self._presence.seen(uid)
        self._gates.see(pod)
        parts.classes.see(pod)
        known = self._ledger.pods.get(uid)
        if known is not None:
            self.reread(pod, known, wake=names.GPU_CLASS in pod.metadata.annotations)
        seen, ours = self._observer.pod(pod, now), self._is_ours(pod)
        self._effects += seen.effects
        self._join(pod, seen.state, now, ours=ours)
        self._effects += parts.runtimes.see(pod)
        if seen.state is not None:
            if not self._gangs.awaits(pod, seen.state):
                self._effects += self._gates.in_vain(seen.state.ref)
            parts.occupants.see(pod, now)
        parts.tenants.see(pod, ours=ours and self._gangs.of(uid) is None)
        self._effects += parts.reservations.see(pod, seen.state if ours else None, now)
        if seen.state is None:
            self._end(uid, now)
            return
        if seen.state.state == "bound":
            self._settle(seen.state)
        elif seen.state.ask is not None:
            self._indexes.warm(seen.state.shape)
        if known is None:
            self._note(seen.state)

    def see_anew(self, pods: Iterable[Pod], now: float) -> None:
        """The class of these pods is another one now; what has a node keeps what it has."""
        for pod in pods:
            self.see(pod, now)

    def asked_for(self, pod: Pod, now: float) -> PodState:
        """kube-scheduler asks for a pod, which our watch may not have shown yet."""
        unseen = pod.metadata.uid not in self._ledger.pods
        state = self._observer.asked(pod, now)
        if unseen:
            self._presence.unseen(pod.metadata.uid, now)
            self._note(state)
            self._join(pod, state, now, ours=True)
            self._effects += self._parts.runtimes.see(pod)
        return state

    def reread(self, pod: Pod, state: PodState, *, wake: bool = False) -> None:
        """Take in whether the pod wants something else now; then `wake` brings it back if it was refused before."""
        if self._observer.asks_anew(pod, state):
            if wake and state.refusal is not None:
                self._effects.append(Wake(state.ref))
            self._holds.drop(state)
            self._waking.forget(state)
            self._observer.learn_anew(pod, state)

    def _is_ours(self, pod: Pod) -> bool:
        schedulers = self._parts.settings.schedulers
        return not schedulers or pod.spec.scheduler_name in schedulers

    def _join(self, pod: Pod, state: PodState | None, now: float, *, ours: bool) -> None:
        """Its queue and its gang."""
        uid = pod.metadata.uid
        if state is not None:
            self._tenancy.see(pod, state, self._gangs.of(uid), ours=ours)
        self._gangs.see(pod, state, now)
        self._tenancy.join(uid, self._gangs.of(uid))

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
            if bound:
                pod.state = "bound"
            else:
                pod.allocation = pod.text = None
                self._ledger.unbind(pod)
        self._gangs.bind_done(uid, bound, now)

    # -- it goes

    def forget(self, uid: str, now: float) -> None:
        """The pod is gone."""
        self._gangs.forget(uid, now)
        self._end(uid, now)

    def forget_lost(self, now: float) -> None:
        """Those are gone in which nobody should believe any more."""
        for uid in self._presence.lost(self._is_bound, now):
            self.forget(uid, now)

    def _is_bound(self, uid: str) -> bool:
        pod = self._ledger.pods.get(uid)
        return pod is not None and pod.state in ("binding", "bound")

    def _end(self, uid: str, now: float) -> None:
        """The pod is over: it holds nothing any more."""
        parts = self._parts
        self._gates.forget(uid)
        parts.classes.forget(uid)
        parts.tenants.forget(uid)
        self._tenancy.forget(uid)
        parts.reservations.forget(uid, now)
        parts.occupants.forget(uid)
        parts.runtimes.forget(uid)
        self._presence.ended(uid, now)
        pod = self._ledger.pods.get(uid)
        if pod is None:
            return
        self._settle(pod)
        self._ledger.unbind(pod)
        del self._ledger.pods[uid]
        parts.telling.forget(uid)
