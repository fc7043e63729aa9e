"""Soft charges: GPUs held for a pod from its filter, or its requeue, until bind or for about a second."""

from __future__ import annotations

from typing import NamedTuple

from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.quarantine import Quarantine
from protos.contract.choose import Choice
from protos.contract.inventory import Inventory


class _Hold(NamedTuple):
    """The soft charge of a pod."""

    pod: PodState
    choice: Choice | None
    """None: there are no GPUs to hold."""
    inventory: Inventory | None
    """Of the node, when the GPUs were chosen."""


class Holds:
    """The pods with a soft charge."""

    def __init__(self, ledger: Ledger, quarantine: Quarantine, last_s: float, undecided_s: float) -> None:
        """A charge lasts `last_s`; filter waits `undecided_s` for a pod that was offered several nodes."""
        self._ledger, self._quarantine = ledger, quarantine
        self._last_s, self._undecided_s = last_s, undecided_s
        self._held: dict[str, _Hold] = {}
        """By UID."""
        self._open: dict[str, PodState] = {}
        """The pods that were offered several nodes."""

    def put(
        self,
        pod: PodState,
        node: str,
        choice: Choice | None,
        now: float,
        *,
        several: bool = False,
        last_s: float | None = None,
    ) -> None:
        """Hold these GPUs of the node for the pod, for `last_s` or as set; `several`: other nodes were offered too."""
        self._ledger.hold(pod, node, choice.charges if choice is not None else {})
        pod.deadline = now + (self._last_s if last_s is None else last_s)
        books = self._ledger.node(node).books
        self._held[pod.ref.uid] = _Hold(pod, choice, books.inventory if books is not None else None)
        if several:
            pod.open_until = now + self._undecided_s
            self._open[pod.ref.uid] = pod

    def holds(self, pod: PodState) -> bool:
        """Whether the pod has a soft charge."""
        held = self._held.get(pod.ref.uid)
        return held is not None and held.pod is pod

    def choice(self, pod: PodState, node: str) -> Choice | None:
        """The GPUs that the pod holds on this node and may still get, None if there are none."""
        held = self._held.get(pod.ref.uid)
        if held is None or held.choice is None or pod.state != "held" or pod.node != node:
            return None
        books = self._ledger.takes_pods(node)
        if books is None or books.inventory is not held.inventory:
            return None
        return held.choice if books.stands(pod.ref.uid, held.choice.charges) else None

    def settle(self, pod: PodState) -> None:
        """The soft charge has become a booking, or is gone."""
        self._open.pop(pod.ref.uid, None)
        self._held.pop(pod.ref.uid, None)

    def drop(self, pod: PodState) -> None:
        """Release the pod's soft charge, if it has one. GPUs held by a gang's start are not soft charges."""
        held = pod.ref.uid in self._held
        self.settle(pod)
        if held and pod.state == "held":
            self._ledger.unbind(pod)

    def expire(self, now: float) -> None:
        """Drop the charges whose time is over."""
        overdue = [held.pod for held in self._held.values() if held.pod.deadline <= now]
        if overdue:
            self._quarantine.each(overdue, lambda pod: pod.subject, "holds", self.drop)

    def undecided(self, uid: str, now: float) -> bool:
        """Whether filter should wait: another pod was offered several nodes and is not in bind yet."""
        for late in [pod for pod in self._open.values() if pod.open_until <= now]:
            del self._open[late.ref.uid]
        return any(other != uid for other in self._open)
