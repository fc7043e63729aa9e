"""Filter: which nodes a pod may go to, and the work that must precede it."""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.state.pod_state import PodState
from extender.engine.types import refusals
from extender.engine.types.effects import Requeue, Verdict
from extender.engine.types.look import LEAST, Look, look
from protos.contract import choose, names
from protos.contract.ask import PodAsk
from protos.contract.objects import Pod
from protos.contract.reason import Reason

CYCLE_S = 0.5
"""In a cycle, kube-scheduler asks about the nominated node alone and about all others within so many seconds."""
PREPARED_NODES = 400
"""Nodes looked at before the event loop goes on, divided by the pod's containers."""


class Filtering:
    """Answers filter. A pod that is offered several nodes has a soft charge on the best of them until its bind."""

    def __init__(self, components: Components, pods: Lifecycle) -> None:
        self._components, self._pods = components, pods
        self._ledger, self._roster, self._barrier = components.ledger, components.gangs.roster, components.barrier
        self._holds, self._waking, self._activator = components.holds, components.waking, components.activator
        self._pending_reasons, self._counters = components.pending_reasons, components.counters
        self._nominations = components.nominations

    def prepare(self, pod: Pod, nodes: Sequence[str], now: float) -> bool:
        """Do a part of the work that must precede filter of this pod and these nodes; returns whether there is more.

        For a new shape of request every node is scored, unless one of these nodes fits. The work is done in parts, so
        that other questions are answered in between.
        """
        uid = pod.metadata.uid
        if self._barrier.prepare(uid, now, self._components.backfill.before_gang):
            return True
        if not self._roster.single(uid):
            return False
        state = self._ledger.pods.get(uid)
        shape = state.shape if state is not None else self._components.observer.shape(pod)
        containers = len(shape.ask.containers) if shape.ask else 1
        reserved = state is not None and self._components.backfill.open_to(state, now) is not None
        some = 0 < len(nodes) < len(self._ledger.nodes) and not reserved
        if some and self._components.indexes.suffice(shape, nodes):
            return False
        return self._components.indexes.prepare(shape, max(1, PREPARED_NODES // containers))

    def filter(self, pod: Pod, nodes: Sequence[str], now: float, *, unheld: bool) -> Verdict:
        """Which of these nodes the pod may go to, best first. `unheld`: kube-scheduler binds it without asking us.

        Expired soft charges are dropped first. While the pod is answered, its reservation is lent to it.
        """
        self._holds.expire(now)
        self._activator.look(now)
        self._components.reservations.lend(pod.metadata.uid)
        if self._components.presence.over(pod.metadata.uid):
            return Verdict((), refusals.GONE)
        state = self._pods.asked_for(pod, now)
        asked = self._look(pod, state, nodes, now)
        verdict = self._verdict(pod, state, asked, now, unheld=unheld)
        state.declined = asked.nominated if asked.alone and not verdict.nodes else ""
        state.declined_until = now + CYCLE_S
        self._activator.look(now)
        return verdict

    def _look(self, pod: Pod, state: PodState, nodes: Sequence[str], now: float) -> Look:
        """The question, without the nominated node if the extender itself has just refused it."""
        nominated = pod.status.nominated_node_name or ""
        declined = nominated == state.declined and now < state.declined_until
        asked = look(nodes, "" if declined else nominated, len(self._ledger.nodes))
        if state.declined and not asked.alone:
            state.excluded = 0  # all but the declined node, as that question said nothing about the others
        if not asked.alone:
            state.sampled = asked.sampled
        if len(nodes) >= LEAST:  # fewer say nothing: the pod may select them
            self._components.indexes.sampled = asked.sampled
        return asked

    def _verdict(self, pod: Pod, state: PodState, asked: Look, now: float, *, unheld: bool) -> Verdict:
        """The steps of filter for a pod that has not ended.

        1. Update what the pod requests, and give back its soft charge.
        2. Offer a booked pod its node alone.
        3. Refuse a pod that cannot be read or has a forged allocation.
        4. A member is offered its planned node alone, or waits for its gang.
        5. Refuse a pod that no node could take even if it were empty.
        6. Check the queue's quota.
        7. Offer the best nodes.
        """
        state.filtered = True
        held, nominated = state.state == "held", self._nominations.asked(state)
        self._holds.drop(state)
        self._pods.reread(pod, state)
        if state.state in ("binding", "bound"):
            if state.node in asked.nodes:
                return Verdict((state.node,))
            if asked.sampled and state.state == "binding":
                self._components.outbox.put(Requeue(state.ref, state.node))
            return self._refuse(state, refusals.ELSEWHERE, now)
        if isinstance(state.asked, Reason):
            return self._refuse(state, state.asked, now)
        if state.forged or names.ALLOCATION in pod.metadata.annotations:
            return self._refuse(state, refusals.FORGED, now)
        answer = self._barrier.filter(state, asked, now, unheld=unheld)
        if isinstance(answer, Verdict):
            return answer
        if answer is not None:
            self._note(state, answer)
            return Verdict((), answer)
        never = self._pending_reasons.never(state)
        if never is not None and state.ask is not None:
            self._waking.refused(state, state.ask, never, asked)
            return self._refuse(state, never, now)
        full = self._components.tenancy.refused(state)
        if full is not None:
            return self._refuse(state, full, now)
        return self._offer(state, pod, asked, now, held=held, first=nominated if nominated in asked.nodes else "")

    def _offer(self, state: PodState, pod: Pod, asked: Look, now: float, *, held: bool, first: str) -> Verdict:
        """Offer the best nodes, and put a soft charge on the best. `held`: the pod had a soft charge already.

        1. Select the node `first`, or else the best nodes, which backfill reservations leave open to the pod.
        2. If this was about its nominated node, refuse it silently, as others come next.
        3. If kube-scheduler did not look at every node, nominate it to one of the others.
        4. Nominations of pods behind it are given up, and nodes are selected again.
        5. Refuse it if there are still none.
        6. Refuse a surplus member while pending workloads go first, unless it was `held`.
        7. Put the soft charge on the best node.
        """
        offers, beside, nodes = self._components.offers, self._roster.beside(state.ref.uid), asked.nodes
        admits = self._components.backfill.open_to(state, now)
        offered = offers.of(state, pod, (first,), beside, admits) if first and state.ask is not None else ()
        offered = offered or offers.of(state, pod, nodes, beside, admits)
        if state.ask is None:
            return Verdict(offered)
        surplus = self._roster.surplus(state.ref.uid)
        if not offered and asked.alone:
            reason = refusals.no_room(state.ask)
            self._waking.refused(state, state.ask, reason, asked)
            return Verdict((), reason)
        if not offered and asked.sampled and not (surplus and self._components.surplus_policy.waits(state)):
            self._waking.refused(state, state.ask, refusals.NOT_LOOKED_AT, asked)
            if self._nominations.nominate(state, now):
                self._counters["decisions", refusals.NOT_LOOKED_AT.code] += 1
                return Verdict((), refusals.NOT_LOOKED_AT)
        if not offered and self._nominations and self._nominations.yield_to(self._components.order.of_pod(state)):
            offered = offers.of(state, pod, nodes, beside, admits)
        if not offered:
            reserved = admits is not None and offers.of(state, pod, nodes, beside)
            reason = refusals.KEPT_IN_LINE if reserved else refusals.no_room(state.ask)
            self._waking.refused(state, state.ask, reason, asked)
            return self._refuse(state, reason, now)
        others_first = surplus and not state.wakes and self._waking.pending(offered)
        if not held and (others_first or self._components.surplus_policy.waits(state)):
            self._waking.refused(state, state.ask, refusals.BEHIND_GANGS, asked)
            return self._refuse(state, refusals.BEHIND_GANGS, now)
        state.refusal = None
        self._waking.forget(state)
        self._charge(state, state.ask, offered, now)
        self._counters["decisions", "Offered"] += 1
        return Verdict(offered)

    def _charge(self, state: PodState, ask: PodAsk, offered: Sequence[str], now: float) -> None:
        books = self._ledger.nodes[offered[0]].books
        choice = choose.choose(ask, books) if books is not None else None
        self._holds.put(state, offered[0], choice, now, several=len(offered) > 1)

    def _refuse(self, state: PodState, reason: Reason, now: float) -> Verdict:
        if reason.code in (*refusals.FOR_ROOM, *refusals.NEVER):
            self._counters["decisions", reason.code] += 1
        else:
            self._note(state, reason)
        self._pending_reasons.report(state, reason, now)
        return Verdict((), reason)

    def _note(self, state: PodState, reason: Reason) -> None:
        """Refuse a pod for another reason than capacity: the requeue does not bring it back."""
        self._waking.forget(state)
        state.refusal = reason
        self._counters["decisions", reason.code] += 1
