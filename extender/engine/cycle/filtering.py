"""Which nodes a pod may go to: kube-scheduler's filter, and the work that it needs first."""

from __future__ import annotations

from collections.abc import Sequence

from extender.engine.cycle.components import Components
from extender.engine.cycle.lifecycle import Lifecycle
from extender.engine.state.pod_state import PodState
from extender.engine.types import refusals
from extender.engine.types.effects import Verdict
from protos.contract import choose, names
from protos.contract.ask import PodAsk
from protos.contract.objects import Pod
from protos.contract.reason import Reason

PREPARED_NODES = 400
"""Nodes looked at before the event loop goes on, divided by the containers of the pod that asks."""


class Filtering:
    """Answers filter. A pod that it sends to several equal nodes keeps its best one softly charged until its bind."""

    def __init__(self, components: Components, pods: Lifecycle) -> None:
        self._components, self._pods, self._effects = components, pods, components.effects
        self._ledger, self._roster, self._barrier = components.ledger, components.gangs.roster, components.barrier
        self._holds, self._waking, self._pending_reasons = (
            components.holds,
            components.waking,
            components.pending_reasons,
        )
        self._activator, self._counters = components.activator, components.counters

    def prepare(self, pod: Pod, now: float) -> bool:
        """Do a part of the work that a filter of this pod needs first; False when none is left.

        A shape of ask that is new costs a look at every node, which nobody else should have to wait for.
        """
        uid = pod.metadata.uid
        if self._barrier.prepare(uid, now, self._components.backfill.before_gang):
            return True
        if self._roster.of(uid) is not None and not self._barrier.single(uid):
            return False
        state = self._ledger.pods.get(uid)
        wanted = state.shape if state is not None else self._components.observer.shape(pod)
        containers = len(wanted.ask.containers) if wanted.ask else 1
        return self._components.indexes.prepare(wanted, max(1, PREPARED_NODES // containers))

    def filter(self, pod: Pod, nodes: Sequence[str], now: float, *, unheld: bool) -> Verdict:
        """Which of these nodes the pod may go to, best first. `unheld`: its bind will not be asked of us."""
        self._holds.expire(now)
        self._effects += self._activator.look(now)
        self._components.reservations.lend(pod.metadata.uid)
        verdict = self._verdict(pod, nodes, now, unheld=unheld)
        self._effects += self._activator.look(now)
        return verdict

    def _verdict(self, pod: Pod, nodes: Sequence[str], now: float, *, unheld: bool) -> Verdict:
        if self._components.presence.over(pod.metadata.uid):
            return Verdict((), refusals.GONE)
        state = self._pods.asked_for(pod, now)
        state.filtered = True
        promised = state.state == "held"
        self._holds.drop(state)
        self._pods.reread(pod, state)
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
            self._note(state, told)
            return Verdict((), told)
        full = self._components.tenancy.refused(state)
        if full is not None:
            return self._refuse(state, full, now)
        return self._offer(state, pod, nodes, now, promised=promised)

    def _offer(self, state: PodState, pod: Pod, nodes: Sequence[str], now: float, *, promised: bool) -> Verdict:
        """`promised`: it was told that there is room for it."""
        offers, beside = self._components.offers, self._roster.beside(state.ref.uid)
        admits = self._components.backfill.open_to(state, now)
        offered = offers.of(state, pod, nodes, beside, admits)
        if state.ask is None:
            return Verdict(offered)
        spare = self._roster.surplus(state.ref.uid)
        if not offered:
            kept = admits is not None and offers.of(state, pod, nodes, beside)
            reason = refusals.KEPT_IN_LINE if kept else self._pending_reasons.no_gpu(state, state.ask)
            self._waking.refused(state, state.ask, reason, self._ledger.all_but(nodes))
            return self._refuse(state, reason, now)
        others_first = spare and not state.wakes and self._waking.pending(offered)
        if not promised and (others_first or self._components.surplus_policy.waits(state)):
            self._waking.refused(state, state.ask, refusals.BEHIND_GANGS, self._ledger.all_but(nodes))
            return self._refuse(state, refusals.BEHIND_GANGS, now)
        state.refusal = None
        self._waking.forget(state)
        self._charge(state, state.ask, offered, now)
        self._counters["decisions", "Offered"] += 1
        return Verdict(offered)

    def _charge(self, state: PodState, ask: PodAsk, offered: Sequence[str], now: float) -> None:
        books = self._ledger.nodes[offered[0]].books
        choice = choose.choose(ask, books) if books is not None else None
        self._holds.put(state, offered[0], choice.charges if choice else {}, now, several=len(offered) > 1)

    def _refuse(self, state: PodState, reason: Reason, now: float) -> Verdict:
        if reason.code in refusals.FOR_ROOM:
            self._counters["decisions", reason.code] += 1
        else:
            self._note(state, reason)
        self._effects += self._pending_reasons.report(state, reason, now)
        return Verdict((), reason)

    def _note(self, state: PodState, reason: Reason) -> None:
        """It waits for something else than room on nodes."""
        self._waking.forget(state)
        state.refusal = reason
        self._counters["decisions", reason.code] += 1
