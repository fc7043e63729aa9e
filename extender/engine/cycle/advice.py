"""Answers kube-scheduler's questions that change nothing: which nodes are best, and which victims would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.engine.cycle import worth
from extender.engine.cycle.components import Components
from extender.engine.state.pod_state import PodState
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.objects import Pod


class Advice:
    """Answers prioritize and preempt."""

    def __init__(self, components: Components) -> None:
        self._components, self._ledger = components, components.ledger
        self._score_tolerance = components.settings.score_tolerance

    def prioritize(self, state: PodState, nodes: Sequence[str]) -> dict[str, int]:
        """10 for each node with a score at most `score_tolerance` below our best, 0 for the others.

        kube-scheduler's own scores decide among nodes with 10.
        """
        indexes = self._components.indexes
        scores = dict(indexes.among(state.shape, nodes))
        if state.node in nodes:  # the node of its soft charge
            row = worth.before(indexes.scorer, self._ledger.nodes[state.node], state)
            if row is not None:
                scores[state.node] = row.points
        least = max(scores.values(), default=0) - self._score_tolerance
        return {name: 10 if name in scores and scores[name] >= least else 0 for name in nodes}

    def preempt(self, pod: Pod, victims: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The candidates (node → victims' UIDs, perhaps none) that would really give the pod its GPUs.

        1. No candidate for a member of a gang that has not started: it needs capacity for all members.
        2. No candidate with a victim in a gang: kube-scheduler does not see that the whole gang would go.
        3. No candidate with a victim of another queue.
        4. No candidate whose node lacks GPUs for the pod even without the victims.
        """
        components, uid = self._components, pod.metadata.uid
        if not components.gangs.roster.single(uid):
            return {}
        queues, roster = components.tenancy.queues, components.gangs.roster
        own, ask = queues.of(uid), components.observer.ask(pod)

        def stays(victim: str) -> bool:
            other = queues.of(victim)
            same_queue = own is None or other is None or queues.at(own) is queues.at(other)
            return roster.of(victim) is not None or not same_queue

        return {
            name: list(uids)
            for name, uids in victims.items()
            if not any(map(stays, uids)) and (ask is None or self._fits_without(ask, name, uids))
        }

    def _fits_without(self, ask: PodAsk, name: str, uids: Sequence[str]) -> bool:
        node = self._ledger.nodes.get(name)
        if node is None or node.books is None or node.problem:
            return False
        return choose.choose(ask, node.books.without(uids)) is not None
