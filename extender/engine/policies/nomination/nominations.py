"""Nominates single pods to nodes that kube-scheduler did not check.

In a large cluster kube-scheduler checks a part of the nodes for each pod. If no node of that part has the GPUs, but
another node has, the pod is refused, nominated to that node and requeued, with a soft charge there. kube-scheduler then
filters that node first. docs/adr/0023 has the reasons.

The soft charge ends after a moment, or when a workload that goes before the pod finds no room. The nomination of a pod
that is still pending then is removed: kube-scheduler keeps CPU and memory of the node for it. Sources: kube-scheduler's
schedule_one.go, evaluateNominatedNode; runtime/framework.go, RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from extender.engine.placement.indexes import Indexes
from extender.engine.policies.context import PolicyContext
from extender.engine.queueing.line import Turn
from extender.engine.state.holds import Holds
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.effects import RemoveNomination, Requeue
from protos.contract import choose
from protos.contract.choose import Choice

NOMINATED_S = 10.0
"""Seconds for which a nominated pod has a soft charge."""
REMOVED_S, REMOVED = 15.0, 20
"""Seconds from a nomination until it is removed from a pod that is still pending, and most removals in one tick."""
TRIED = 1000
"""The best nodes that are tried for one pod; fewer where a check takes long."""
REFUSED, PAUSE_S = 4, 60.0
"""After so many nodes that kube-scheduler refused, a pod is not nominated for so many seconds."""
OpenTo = Callable[[PodState, float], Callable[[NodeState], bool] | None]
"""`Backfill.open_to`."""


class Nominations:
    """The nominated single pods with a soft charge, and all pods that have a nomination of ours."""

    def __init__(self, context: PolicyContext, indexes: Indexes, holds: Holds, open_to: OpenTo) -> None:
        self._context, self._ledger = context, context.ledger
        self._indexes, self._holds, self._open_to = indexes, holds, open_to
        self._ignored = frozenset(context.settings.resources.managed)
        self._charged: dict[str, PodState] = {}
        """By UID."""
        self._written: dict[str, float] = {}
        """By UID: when to remove the nomination of a pod that is still pending, the earliest first."""

    def __bool__(self) -> bool:
        """Whether any nominated pod has a soft charge."""
        return bool(self._charged)

    def see(self, pod: PodState, now: float) -> None:
        """Take in a pod that the watch shows."""
        uid = pod.ref.uid
        if pod.info.on_node:
            self.forget(uid)
        elif pod.info.nominated_by_us and uid not in self._written:
            self._written[uid] = now + REMOVED_S
            if not self._context.gangs.rounds.leading:  # a leader knows its own ones
                self._adopt(pod, pod.info.nominated, now)

    def listed(self, now: float) -> None:
        """All pods are read: charge the nodes of members of started gangs that another process nominated."""
        for pod in [self._ledger.pods[uid] for uid in self._written if uid in self._ledger.pods]:
            if self._context.gangs.roster.of(pod.ref.uid) is not None:
                self._adopt(pod, pod.info.nominated, now)

    def forget(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        self._charged.pop(uid, None)
        self._written.pop(uid, None)

    def asked(self, pod: PodState) -> str:
        """kube-scheduler asks about the pod; returns the node that is charged for its nomination, "" if none is."""
        return pod.node if self._charged.pop(pod.ref.uid, None) is not None and pod.state == "held" else ""

    def nominate(self, pod: PodState, now: float) -> bool:
        """Requeue the pod to the best node that was not refused; returns whether there is one.

        Nodes that kube-scheduler refuses are excluded the next time, so this ends.
        """
        if pod.excluded.bit_count() >= REFUSED:
            pod.nominated_again_at = now + PAUSE_S
        best = self._best(pod, now) if now >= pod.nominated_again_at else None
        if best is not None:
            self._charge(pod, *best, now)
            self._context.outbox.put(Requeue(pod.ref, best[0]))
            self._count("made", 1)
        return best is not None

    def yield_to(self, turn: Turn) -> bool:
        """Give up the soft charges of pods that come after this turn; returns whether there were any."""
        order = self._context.order
        later = [pod for pod in self._charged.values() if order.of_pod(pod) > turn]
        for pod in later:
            del self._charged[pod.ref.uid]
        self._context.quarantine.each(later, lambda pod: pod.subject, "nomination", self._holds.drop)
        self._count("yielded", len(later))
        return bool(later)

    def tick(self, now: float) -> None:
        """Forget soft charges that have ended, and remove nominations that pods have in vain."""
        over = [uid for uid, pod in self._charged.items() if pod.state != "held"]
        for uid in over:
            del self._charged[uid]
        if not self._context.gangs.rounds.leading:
            return
        self._count("lapsed", len(over))
        for uid, at in list(islice(self._written.items(), REMOVED)):
            if at > now:
                return
            del self._written[uid]
            self._remove(self._ledger.pods.get(uid), now)

    def _remove(self, pod: PodState | None, now: float) -> None:
        """Remove the nomination of a pod that is still pending, unless GPUs are held for it."""
        if pod is not None and pod.state == "held":
            self._written[pod.ref.uid] = now + REMOVED_S
        elif pod is not None and pod.state == "waiting" and pod.info.nominated_by_us:
            self._context.outbox.put(RemoveNomination(pod.ref))
            self._count("removed", 1)

    def _count(self, outcome: str, pods: int) -> None:
        if pods:
            self._context.counters["nominations", outcome] += pods

    def _best(self, pod: PodState, now: float) -> tuple[str, Choice] | None:
        """The best node that admits the pod, and its GPUs there."""
        ask, is_open = pod.ask, self._open_to(pod, now)
        if ask is None:
            return None
        for name, _ in islice(self._indexes.of(pod.shape).ranked(), TRIED // pod.info.constraints.cost):
            node = self._ledger.nodes[name]
            if node.books is None or (is_open is not None and not is_open(node)):
                continue
            if pod.passes(node, self._ignored):
                choice = choose.choose(ask, node.books)
                if choice is not None:
                    return name, choice
        return None

    def _adopt(self, pod: PodState, name: str, now: float) -> None:
        """Charge the node to which another process has nominated the pod, if there is room."""
        books, single = self._ledger.takes_pods(name), self._context.gangs.roster.single(pod.ref.uid)
        if pod.ask is not None and pod.state == "waiting" and books is not None and single:
            choice = choose.choose(pod.ask, books)
            if choice is not None:
                self._charge(pod, name, choice, now)

    def _charge(self, pod: PodState, node: str, choice: Choice, now: float) -> None:
        uid = pod.ref.uid
        self._holds.put(pod, node, choice, now, last_s=NOMINATED_S)
        self._charged[uid] = pod
        self._written.pop(uid, None)
        self._written[uid] = now + REMOVED_S
