"""Bind: whether a pod is bound to the node that kube-scheduler chose, and with which GPUs."""

from __future__ import annotations

from extender.engine.cycle.components import Components
from extender.engine.types import refusals
from extender.engine.types.effects import Already, BindAnswer, PodRef, Refuse
from protos.contract.reason import Reason


class Binding:
    """Answers bind. A pod is booked before its Binding is written."""

    def __init__(self, components: Components, started: float) -> None:
        """For a while after `started`, another process may have filtered a pod."""
        self._components, self._counters = components, components.counters
        self._believed_until = started + components.settings.unseen_bind_s

    def bind(self, ref: PodRef, node: str, now: float, wall_ns: int) -> BindAnswer:
        """Book the pod's GPUs on this node. `wall_ns`: the wall clock in ns since 1970.

        While the pod is answered, its reservation is lent to it.
        """
        self._components.reservations.lend(ref.uid)
        answer = self._answer(ref, node, now, wall_ns)
        self._components.activator.look(now)
        return answer

    def _answer(self, ref: PodRef, node: str, now: float, wall_ns: int) -> BindAnswer:
        """The steps of bind.

        1. Refuse a pod that was not filtered.
        2. Answer again for a pod that is booked already.
        3. Refuse a pod that cannot be read or has a forged allocation.
        4. A member with a held place waits at the barrier, or its place is booked.
        5. Check the queue's quota.
        6. Book the GPUs of the soft charge if it stands on this node, else choose others and book them.
        """
        components = self._components
        pod = components.ledger.pods.get(ref.uid)
        if pod is None or not (pod.filtered or now < self._believed_until):
            return self._refuse(refusals.UNSEEN)
        if pod.state in ("binding", "bound"):
            if pod.node != node:
                return self._refuse(refusals.ELSEWHERE)
            return Already() if pod.state == "bound" else components.booking.place(pod, node, wall_ns)
        if isinstance(pod.asked, Reason) or pod.forged:
            return self._refuse(pod.asked if isinstance(pod.asked, Reason) else refusals.FORGED)
        answer = components.barrier.bind(pod, node, now)
        if answer is not None:
            return self._refuse(answer.reason) if isinstance(answer, Refuse) else answer
        held = components.holds.choice(pod, node)
        if held is None:
            components.holds.drop(pod)
        full = components.tenancy.refused(pod)
        if full is not None:
            components.holds.drop(pod)
            return self._refuse(full)
        if held is None and not components.booking.choose(pod, node):
            return self._refuse(refusals.TAKEN)
        answer = components.booking.book(pod, node, components.barrier.posted(ref.uid, node, now), wall_ns, held)
        components.holds.settle(pod)
        return answer

    def _refuse(self, reason: Reason) -> Refuse:
        self._counters["decisions", reason.code] += 1
        if reason is refusals.TAKEN:
            self._counters["conflicts", ""] += 1
        return Refuse(reason)
