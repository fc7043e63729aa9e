"""The records of nodes and pods, and the bookings of GPUs.

Everything is rebuilt from the allocation annotations of bound pods and the inventories of nodes. A booking is HELD (a
soft charge with a deadline), BINDING or BOUND. Every change of a node marks it stale in the indexes that rank nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.engine.state.inventories import Inventories
from extender.engine.state.node_numbers import NodeNumbers
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import Change, PodState
from extender.engine.types.amounts import add
from extender.engine.types.effects import PodRef
from extender.engine.types.look import Look
from protos.contract import inventory, names
from protos.contract.ask import Demand
from protos.contract.books import NodeBooks
from protos.contract.objects import Node

Changed = Callable[[str, bool, bool], None]


class Ledger:
    """All nodes and pods. `changed(node, room, amounts)` is called when the capacity of a node has changed.

    `room`: it may have grown; `amounts`: GPUs or totals have changed, not only labels and taints. `moved` is called
    when the node, GPUs or requests of a pod have changed.
    """

    def __init__(
        self, unit_mib: int, slices_per_gpu: int, gpushare: bool, changed: Changed, moved: Callable[[PodState], None]
    ) -> None:
        self.slices_per_gpu, self.gpushare = slices_per_gpu, gpushare
        self._changed, self._on_moved = changed, moved
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodState] = {}
        self.keepers: dict[str, PodState] = {}
        """Bookings of reservations and replacement holds: HELD, under names that are no UIDs."""
        self.on_node: dict[str, dict[str, None]] = {}
        """UIDs by node, in order of arrival."""
        self.leaving: dict[str, None] = {}
        """Nodes that are drained."""
        self.excluded: dict[str, int] = {}
        """By a gang member's UID: the nodes that kube-scheduler refuses for it, as bits by node number."""
        self.freed = 0
        """Counts changes that may have freed any resource of a node."""
        self._numbers = NodeNumbers(self._forget_numbers)
        self._inventories = Inventories(unit_mib, slices_per_gpu, gpushare)
        self.stock = self._inventories.stock

    # -- nodes

    def node(self, name: str) -> NodeState:
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = NodeState(name, self._numbers.take())
        return found

    def _forget_numbers(self, gone: int) -> None:
        """Remove these node numbers (bits) from all sets of nodes."""
        for pod in self.pods.values():
            if pod.excluded:
                pod.excluded &= ~gone
        for uid, nodes in self.excluded.items():
            self.excluded[uid] = nodes & ~gone

    def takes_pods(self, name: str) -> NodeBooks | None:
        """The books of a node that takes new pods, else None."""
        state = self.nodes.get(name)
        return state.books if state is not None and state.seen and not state.problem else None

    def refused_by(self, look: Look) -> int:
        """The nodes that kube-scheduler's own filters refuse, as bits by node number. All but one if that is alone."""
        if len(look.nodes) >= len(self.nodes):
            return 0
        known = self.nodes.keys() & {look.nominated} if look.sampled else self.nodes.keys()
        return self._numbers.bits([self.nodes[name].number for name in known - frozenset(look.nodes)])

    def set_node(self, node: Node, allocatable: Mapping[str, int], leaving: str = "") -> bool:
        """Set a node; returns whether anything relevant changed. `leaving`: the taint or label that drains it."""
        state = self.node(node.metadata.name)
        annotations = node.metadata.annotations
        text, cordoned = annotations.get(names.GPUS), annotations.get(names.CORDONED_GPUS, "")
        marks = (node.metadata.labels, node.spec.taints, node.spec.unschedulable)
        before = (state.allocatable, state.inventory_text, state.cordoned, state.leaving)
        amounts = not state.seen or before != (allocatable, text, cordoned, leaving)
        if not amounts and marks == (state.labels, state.taints, state.unschedulable):
            return False
        state.seen, state.cordoned, state.allocatable = True, cordoned, allocatable
        state.labels, state.taints, state.unschedulable = marks
        state.version += 1
        if amounts:
            self._set_amounts(state, node, text, leaving)
        self.freed += 1
        self._changed(state.name, True, amounts)
        return True

    def _set_amounts(self, state: NodeState, node: Node, text: str | None, leaving: str) -> None:
        if text is not None and text == state.inventory_text and state.books is not None:
            self._inventories.mark(state, state.books.inventory)
        else:
            state.inventory_text = text
            if self._inventories.read(state, node):
                self._place_again(state.name)
        self._set_leaving(state, leaving)

    def _set_leaving(self, state: NodeState, leaving: str) -> None:
        state.leaving = leaving
        state.problem = state.fault or (f"it is about to be removed: it has {leaving}" if leaving else "")
        self.leaving.pop(state.name, None)
        if leaving:
            self.leaving[state.name] = None

    def _place_again(self, name: str) -> None:
        """Book the pods of the node again, as its GPUs may have changed."""
        for uid in sorted(self.on_node.get(name, ())):
            pod = self.pods.get(uid)
            if pod is not None and pod.state != "held":
                self._place(pod)
                self._on_moved(pod)

    def set_unhealthy(self, name: str, minors: frozenset[int]) -> None:
        self._inventories.set_unhealthy(name, minors)
        state = self.nodes.get(name)
        if state is not None and state.books is not None:
            self._inventories.mark(state, state.books.inventory)
            state.version += 1
            self.freed += 1
            self._changed(name, True, True)

    def drop_node(self, name: str) -> None:
        """The node was deleted; its pods stay on it until they are deleted."""
        state = self.nodes.get(name)
        if state is not None:
            state.seen, state.books, state.inventory_text, state.fault = False, None, None, ""
            self._set_leaving(state, "")
            state.version += 1
            self.stock.put(name, None)
            self._drop_if_unused(state)
        self._changed(name, False, True)

    def _drop_if_unused(self, state: NodeState) -> None:
        if not state.seen and state.name not in self.on_node:
            del self.nodes[state.name]
            self._numbers.give_back(state.number)

    # -- pods

    def pod(self, ref: PodRef, now: float) -> PodState:
        found = self.pods.get(ref.uid)
        if found is None:
            found = self.pods[ref.uid] = PodState(ref, now)
        return found

    def bind(self, pod: PodState, node: str, change: Change) -> None:
        """Put a pod on a node with the GPUs of `pod.allocation`; without a usable one, on every GPU that fits."""
        before = self._go(pod, node, change)
        self._place(pod)
        self._moved(pod, before)

    def hold(self, pod: PodState, node: str, charges: Mapping[str, Demand]) -> None:
        """Put a pod on a node with a HELD booking of these charges."""
        before = self._go(pod, node, Change.HELD)
        books = self.node(node).books
        if books is not None and pod.ask is not None:
            books.hold(pod.ref.uid, pod.ask, charges)
        self._moved(pod, before)

    def confirm(self, pod: PodState) -> None:
        """Book what is held for the pod: nothing changes of its node, nor of what it uses of its queue."""
        pod.move(Change.BOOKED)
        books = self.node(pod.node).books
        if books is not None:
            books.confirm(pod.ref.uid)

    def unbind(self, pod: PodState) -> None:
        """Take a pod off its node."""
        before = self._leave(pod)
        if before is not None:
            pod.move(Change.RELEASED)
            self._left(pod, before[0])
            self._on_moved(pod)

    def unbook(self, pod: PodState) -> None:
        """Take a pod off its node, as its Binding will not be written."""
        self.unbind(pod)  # first: if this fails, booking and allocation still agree
        pod.allocation = pod.text = None

    def resize(self, pod: PodState, requests: tuple[tuple[str, int], ...]) -> None:
        """Set the pod's in-tree requests."""
        before, pod.requests = dict(pod.requests), requests
        now = dict(requests)
        less = any(now.get(resource, 0) < amount for resource, amount in before.items())
        if pod.node:
            here = self.node(pod.node)
            here.version += 1
            add(here.used, before.items(), -1)
            add(here.used, requests)
            self.freed += less
            self._changed(pod.node, less, True)
        self._on_moved(pod)

    def _go(self, pod: PodState, node: str, change: Change) -> tuple[str, Mapping[str, Demand]] | None:
        """Put a pod on a node; returns the result of `_leave`. KeyError if the state has no such change."""
        state = pod.after(change)
        before = self._leave(pod)
        pod.state = state
        self._enter(pod, node)
        return before

    def _enter(self, pod: PodState, node: str) -> None:
        pod.node = node
        self.on_node.setdefault(node, {})[pod.ref.uid] = None
        here = self.node(node)
        here.version += 1
        add(here.used, pod.requests)

    def _moved(self, pod: PodState, before: tuple[str, Mapping[str, Demand]] | None) -> None:
        """Report the changes of the pod, its node and the node that it left."""
        if before is not None and before[0] != pod.node:
            self._left(pod, before[0])
        less = pod.ask is not None and before is not None and before != (pod.node, self.charges(pod))
        self.freed += less
        self._on_moved(pod)
        self._changed(pod.node, less, True)

    def _left(self, pod: PodState, node: str) -> None:
        self.freed += 1
        self._changed(node, pod.ask is not None, True)

    def charges(self, pod: PodState) -> Mapping[str, Demand]:
        """The charges of a pod on the GPUs of its node."""
        state = self.nodes.get(pod.node)
        entry = state.books.entries.get(pod.ref.uid) if state and state.books else None
        return entry.charges if entry else {}

    def _leave(self, pod: PodState) -> tuple[str, Mapping[str, Demand]] | None:
        """Take a pod off its node; returns the node and the charges there, None if it had no node."""
        if not pod.node:
            return None
        before = (pod.node, self.charges(pod))
        state, here = self.nodes.get(pod.node), self.on_node[pod.node]
        if state is not None and state.books is not None:
            state.books.release(pod.ref.uid)  # first: if this fails, nothing has changed
        here.pop(pod.ref.uid, None)
        if not here:
            del self.on_node[pod.node]
        if state is not None:
            state.version += 1
            add(state.used, pod.requests, -1)
            self._drop_if_unused(state)
        pod.node, pod.unusable = "", False
        return before

    def _place(self, pod: PodState) -> None:
        books = self.node(pod.node).books
        if pod.ask is None or books is None:
            return
        allocation = pod.allocation
        if self.gpushare and allocation:  # made-up names of GPUs cannot be matched with UUIDs
            made_up = any(inventory.made_up(gpu.uuid) for gpu in books.inventory.gpus)
            allocation = allocation if any(map(inventory.made_up, allocation.uuids())) == made_up else None
        usable = books.place(pod.ref.uid, pod.ask, allocation)
        pod.unusable = allocation is not None and not usable

    # -- after internal errors

    def set_aside(self, name: str, why: str) -> None:
        """The node takes no new pods until it is read again; its bookings stay."""
        state = self.nodes.get(name)
        if state is not None:
            state.seen, state.inventory_text = False, None
            state.fault = state.problem = why
            state.version += 1
            self._changed(name, False, True)

    def rebuild(self, name: str) -> None:
        """Book the pods of a node again: soft charges as before, other pods by their allocations."""
        state = self.nodes[name]
        uids = sorted(self.on_node.get(name, ()))
        here = [pod for uid in uids if (pod := self.pods.get(uid) or self.keepers.get(uid))]
        held = {pod.ref.uid: self.charges(pod) for pod in here if pod.state == "held"}
        if state.books is not None:
            before, state.books = state.books.inventory, None
            self._inventories.mark(state, before)
        state.used = {}
        self.on_node.pop(name, None)
        for pod in here:
            self._enter(pod, name)
            if pod.state != "held":
                self._place(pod)
            elif pod.ask is not None and state.books is not None:
                state.books.hold(pod.ref.uid, pod.ask, held[pod.ref.uid])
        self._changed(name, True, True)
