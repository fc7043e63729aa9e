"""Books pods, and makes their Bindings with the annotations that these carry."""

from __future__ import annotations

from collections import Counter

import msgspec

from extender.engine.gangs.assignments import Assignments
from extender.engine.placement.seats import fits
from extender.engine.queueing.waking import Waking
from extender.engine.state import dialect
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import Change, PodState
from extender.engine.types.effects import PostBinding
from extender.engine.types.settings import Settings
from gangfilter.gang import Gang
from protos.contract import allocation, choose, codec
from protos.contract.allocation import Allocation, Group, Share
from protos.contract.ask import PodAsk
from protos.contract.books import NodeBooks
from protos.contract.choose import Choice


class Booking:
    """Leads from a chosen node to the Binding."""

    def __init__(
        self,
        ledger: Ledger,
        assignments: Assignments,
        waking: Waking,
        settings: Settings,
        counters: Counter[tuple[str, str]],
    ) -> None:
        self._ledger, self._assignments, self._waking = ledger, assignments, waking
        self._settings, self._counters = settings, counters

    def choose(self, pod: PodState, node: str) -> bool:
        """Choose the pod's GPUs on this node; returns whether it fits there."""
        target = self._ledger.nodes.get(node)
        if pod.ask is None:
            return True
        if target is None or target.books is None:
            return target is not None and fits(pod.ask, target)
        choice = None if target.problem else choose.choose(pod.ask, target.books)
        if choice is not None:
            pod.allocation = _allocation(target.books, choice.shares, pod.ask)
        return choice is not None

    def release(self, pod: PodState, gang: Gang) -> PostBinding:
        """Book the held place of a member of a gang."""
        assignment = self._assignments.of_member[pod.ref.uid]
        books = self._ledger.node(assignment.node).books
        if books is not None and assignment.shares:
            pod.allocation = _allocation(books, dict(assignment.shares), pod.ask)
        return self.book(pod, assignment.node, gang)

    def book(
        self, pod: PodState, node: str, gang: Gang | None, wall_ns: int = 0, held: Choice | None = None
    ) -> PostBinding:
        """Book the chosen GPUs, or those that are `held` for the pod on this node.

        `wall_ns`: the wall clock in ns since 1970, for the annotations of gpushare.
        """
        books = self._ledger.node(node).books
        if held is not None and books is not None:
            pod.allocation = _allocation(books, held.shares, pod.ask)
        if gang is not None:
            group = Group(str(gang.key), gang.epoch, max(1, gang.size))
            nothing = Allocation(codec.VERSION, self._settings.unit_mib, self._settings.slices_per_gpu, {})
            pod.allocation = msgspec.structs.replace(pod.allocation or nothing, group=group)
        pod.text = allocation.encode(pod.allocation) if pod.allocation else None
        if held is not None:
            self._ledger.confirm(pod)
        else:
            self._ledger.bind(pod, node, Change.BOOKED)
        self._waking.forget(pod)
        pod.refusal = None
        self._counters["decisions", "Bound"] += 1
        return self.place(pod, node, wall_ns)

    def place(self, pod: PodState, node: str, wall_ns: int) -> PostBinding:
        """The Binding of a booked pod."""
        annotations = dialect.of_binding(pod, self._ledger.node(node), self._settings, wall_ns) if pod.text else {}
        return PostBinding(pod.ref, node, annotations, pod.allocation)


def _allocation(books: NodeBooks, shares: dict[str, tuple[Share, ...]], ask: PodAsk | None) -> Allocation:
    """With what the pod demands for its parts; whole GPUs need nothing."""
    demanded = ask.containers[0].isolation if ask is not None else "any"
    parts = any(not share.whole for each in shares.values() for share in each)
    inventory, isolation = books.inventory, demanded if parts and demanded != "any" else None
    return Allocation(codec.VERSION, inventory.unit_mib, inventory.slices_per_gpu, shares, isolation=isolation)
