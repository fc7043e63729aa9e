"""Nominates pending single pods: their nodes are decided before kube-scheduler asks, so it looks at one node for each.

In a large cluster kube-scheduler's look at every node costs more than the write of a nomination. So where pods wait for
kube-scheduler, the next of them get a node and a soft charge there, as after filter. kube-scheduler filters a nominated
node alone, asks about it, and looks at all nodes only if it does not pass. docs/adr/0022 has the reasons.

A nomination is given up when its time is over, when kube-scheduler refuses the node, or when a workload that goes
before the pod finds no room. The field on the pod is removed later, if the pod is still pending then: kube-scheduler
keeps CPU and memory of the node for it. Sources: kube-scheduler's schedule_one.go, evaluateNominatedNode;
runtime/framework.go, RunFilterPluginsWithNominatedPods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from extender.engine.placement.index import Indexes
from extender.engine.policies.context import PolicyContext
from extender.engine.policies.nomination.candidates import Candidates, Place
from extender.engine.queueing.line import Turn
from extender.engine.state.holds import Holds
from extender.engine.state.intree import short_of
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.effects import Nominate
from protos.contract import choose
from protos.contract.ask import Demand

AHEAD = 48
"""Most nominated pods that kube-scheduler has not asked about."""
NOMINATED_S = 10.0
"""Seconds for which such a pod has a soft charge."""
REMOVED_S, REMOVED = 15.0, 20
"""Seconds from a nomination until it is removed from a pod that is still pending, and most removals in one tick."""
BACKLOG = 4
"""Pods that must wait for kube-scheduler: it takes a single one before a nomination could reach it."""
SKIPPED = 2
"""Pods at the head that are passed over: kube-scheduler takes them before a nomination could reach it."""
AT_ONCE = 4
"""Pods nominated in one slice."""
LOOKS, TRIED = 200, 64
"""Nodes looked at in one slice for a new shape, and the best nodes that are tried for one pod."""
OpenTo = Callable[[PodState, float], Callable[[NodeState], bool] | None]
"""`Backfill.open_to`."""


class Nominations:
    """The nominated pods that kube-scheduler has not asked about, and all pods that have a nomination of ours."""

    def __init__(self, context: PolicyContext, indexes: Indexes, holds: Holds, open_to: OpenTo) -> None:
        self._context, self._ledger, self._settings = context, context.ledger, context.settings
        self._indexes, self._holds, self._open_to = indexes, holds, open_to
        self._ignored = frozenset(context.settings.resources.all)
        self._candidates = Candidates(context)
        self._ahead: dict[str, tuple[Place, PodState]] = {}
        """Nominated pods that kube-scheduler has not asked about, by UID."""
        self._written: dict[str, float] = {}
        """By UID: when to remove the nomination of a pod that is still pending, the earliest first."""
        self._stalled = False
        """Nominations were in vain, and kube-scheduler has not asked about any pod since."""

    def __bool__(self) -> bool:
        """Whether any nominated pod has not been asked about."""
        return bool(self._ahead)

    # -- pods

    def see(self, pod: PodState, now: float) -> None:
        """Take in a pod that the watch shows."""
        uid = pod.ref.uid
        if pod.info.on_node:
            self.forget(uid)
            return
        if pod.info.nominated_by_us and uid not in self._written:
            self._written[uid] = now + REMOVED_S
            if not self._context.gangs.rounds.leading:  # a leader knows its own ones
                self._adopt(pod, pod.info.nominated, now)
        if uid not in self._ahead:
            self._candidates.see(pod)

    def forget(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        self._candidates.forget(uid)
        self._ahead.pop(uid, None)
        self._written.pop(uid, None)

    def asked(self, pod: PodState) -> str:
        """kube-scheduler asks about the pod; returns the node that is charged for its nomination, "" if none is."""
        self._stalled = False
        self._candidates.forget(pod.ref.uid)
        ahead = self._ahead.pop(pod.ref.uid, None)
        return pod.node if ahead is not None and pod.state == "held" else ""

    def yield_to(self, turn: Turn) -> bool:
        """Give up the nominations of pods that come after this turn; returns whether there were any."""
        order = self._context.order
        later = [pod for _, pod in self._ahead.values() if order.of_pod(pod) > turn]
        for pod in later:
            del self._ahead[pod.ref.uid]
        self._context.quarantine.each(later, lambda pod: pod.subject, "nomination", self._holds.drop)
        self._count("yielded", len(later))
        return bool(later)

    # -- time

    def lead(self) -> None:
        """This process begins or ends to lead. Another one charges the leader's nominations as it sees them."""
        self._stalled = False

    def tick(self, now: float) -> None:
        """Give up nominations whose time is over, and remove those that pods have in vain."""
        over = [pod for _, pod in self._ahead.values() if pod.state != "held"]
        for pod in over:
            del self._ahead[pod.ref.uid]
        if not self._context.gangs.rounds.leading:
            return
        lapsed = sum(now >= pod.deadline for pod in over)
        self._stalled |= lapsed > 0
        self._count("lapsed", lapsed)
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
            self._context.outbox.put(Nominate(pod.ref, ""))
            self._count("removed", 1)

    def _count(self, outcome: str, pods: int) -> None:
        if pods:
            self._context.counters["nominations", outcome] += pods

    # -- nominations

    def work(self, now: float) -> bool:
        """Nominate the next pods; returns whether there is more to do."""
        for _ in range(AT_ONCE):
            following = self._next()
            if following is None:
                return False
            place, pod = following
            if self._indexes.prepare(pod.shape, LOOKS):
                return True
            self._candidates.forget(pod.ref.uid)
            with self._context.quarantine.over(pod.subject, "nomination"):
                self._nominate(place, pod, now)
        return True

    def _next(self) -> tuple[Place, PodState] | None:
        """The next pod to nominate, None if none should be now."""
        context, waiting, ahead = self._context, len(self._candidates), len(self._ahead)
        large = self._settings.nominates(len(self._ledger.nodes)) and not self._settings.in_tree_preferences
        if not large or self._stalled or ahead >= AHEAD or waiting + ahead < BACKLOG:
            return None
        following = self._candidates.first(SKIPPED, [place for place, _ in self._ahead.values()])
        if following is None or not context.gangs.rounds.leading:
            return None
        gang = context.gangs.planner.turns.first()
        goes_first = gang is not None and context.order.of_gang(gang) < context.order.of_pod(following[1])
        return None if goes_first else following

    def _nominate(self, place: Place, pod: PodState, now: float) -> None:
        """Charge the best node that admits the pod, and write its name."""
        ask = pod.ask
        if ask is None or pod.state != "waiting" or not self._context.tenancy.admits(pod):
            return
        is_open = self._open_to(pod, now)
        for name, _ in islice(self._indexes.of(pod.shape).ranked(), TRIED):
            node = self._ledger.nodes[name]
            choice = choose.choose(ask, node.books) if node.books is not None and self._admits(pod, node) else None
            if choice is None or (is_open is not None and not is_open(node)):
                continue
            self._charge(place, pod, name, choice.charges, now)
            self._context.outbox.put(Nominate(pod.ref, name))
            self._count("made", 1)
            return

    def _adopt(self, pod: PodState, name: str, now: float) -> None:
        """Charge the node to which another process has nominated the pod, if there is room."""
        books, single = self._ledger.takes_pods(name), self._context.gangs.roster.of(pod.ref.uid) is None
        if pod.ask is not None and pod.state == "waiting" and books is not None and single and len(self._ahead) < AHEAD:
            choice = choose.choose(pod.ask, books)
            if choice is not None:
                self._charge(self._candidates.place(pod), pod, name, choice.charges, now)

    def _charge(self, place: Place, pod: PodState, node: str, charges: Mapping[str, Demand], now: float) -> None:
        uid = pod.ref.uid
        self._holds.put(pod, node, charges, now, last_s=NOMINATED_S)
        self._ahead[uid] = place, pod
        self._written.pop(uid, None)
        self._written[uid] = now + REMOVED_S

    def _admits(self, pod: PodState, node: NodeState) -> bool:
        """Whether kube-scheduler's own filters admit the pod to the node, as far as the engine knows them."""
        return pod.info.constraints.admits(node) and not short_of(node, pod.requests, self._ignored)
