"""Soft charges: what filter promised a pod, or a wake keeps for it, until its bind or a moment later."""

from __future__ import annotations

from collections.abc import Mapping

from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.quarantine import Quarantine
from protos.contract.ask import Demand


class Holds:
    """The pods that are HELD."""

    def __init__(self, ledger: Ledger, quarantine: Quarantine, last_s: float, undecided_s: float) -> None:
        """A charge lasts `last_s`; for `undecided_s` a filter waits for a pod that was offered several nodes."""
        self._ledger, self._quarantine = ledger, quarantine
        self._last_s, self._undecided_s = last_s, undecided_s
        self._held: dict[str, PodState] = {}
        self._open: dict[str, PodState] = {}
        """Those that were offered several nodes."""

    def put(
        self, pod: PodState, node: str, charges: Mapping[str, Demand], now: float, *, several: bool = False
    ) -> None:
        """Keep this much of the node for the pod; `several`: other nodes were offered too."""
        self._ledger.hold(pod, node, charges)
        pod.deadline = now + self._last_s
        self._held[pod.ref.uid] = pod
        if several:
            pod.open_until = now + self._undecided_s
            self._open[pod.ref.uid] = pod

    def holds(self, pod: PodState) -> bool:
        """Whether something is kept for the pod here."""
        return self._held.get(pod.ref.uid) is pod

    def settle(self, pod: PodState) -> None:
        """The pod is not merely held any more."""
        self._open.pop(pod.ref.uid, None)
        self._held.pop(pod.ref.uid, None)

    def drop(self, pod: PodState) -> None:
        """Give back what is kept for the pod, if anything is. What a gang's start holds is none of ours."""
        kept = pod.ref.uid in self._held
        self.settle(pod)
        if kept and pod.state == "held":
            self._ledger.unbind(pod)

    def expire(self, now: float) -> None:
        """Drop what was not used in time."""
        over = [pod for pod in self._held.values() if pod.deadline <= now]
        if over:
            self._quarantine.each(over, lambda pod: pod.subject, "holds", self.drop)

    def undecided(self, uid: str, now: float) -> bool:
        """Whether a pod other than this one was offered several nodes and its bind has not said which."""
        for over in [pod for pod in self._open.values() if pod.open_until <= now]:
            del self._open[over.ref.uid]
        return any(other != uid for other in self._open)
