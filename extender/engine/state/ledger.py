"""Nodes, pods and who holds what: rebuilt at any time from the cluster's own objects.

The pods are the books: allocation annotations on bound pods and inventories on nodes say everything. A booking is
HELD (a soft charge with a deadline), then BINDING, then BOUND, then gone. Every change of a node marks it stale in the
indexes that rank nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from extender.engine.state.inventories import Inventories, made_up
from extender.engine.state.node_numbers import NodeNumbers
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import Change, PodState, Requests
from extender.engine.types.amounts import add
from extender.engine.types.effects import PodRef
from protos.contract import inventory, names
from protos.contract.ask import Demand
from protos.contract.books import NodeBooks
from protos.contract.objects import Node
from protos.contract.remembered import Remembered

Changed = Callable[[str, bool, bool], None]
INTERNED = 8192
"""Sets of amounts that are kept once for all pods that ask the same."""


class Ledger:
    """All nodes and pods. `changed(node, room, amounts)` is called when what a node can take changed.

    `room`: maybe it can take more; `amounts`: its GPUs or totals are others, not only its labels and taints. `moved` is
    called when a pod is on another node or other GPUs than before.
    """

    def __init__(
        self, unit_mib: int, slices_per_gpu: int, gpushare: bool, changed: Changed, moved: Callable[[PodState], None]
    ) -> None:
        self.slices_per_gpu, self.gpushare = slices_per_gpu, gpushare
        self._changed, self._told_moved = changed, moved
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodState] = {}
        self.keepers: dict[str, PodState] = {}
        """What is kept for pods that do not exist yet: HELD, under names that are no UIDs."""
        self.on_node: dict[str, dict[str, None]] = {}
        """UIDs by node, in the order in which they came."""
        self.leaving: dict[str, None] = {}
        """The nodes that are about to go."""
        self.excluded: dict[str, int] = {}
        """Nodes that kube-scheduler refuses a member of a gang, by its UID: bits by node number."""
        self.freed = 0
        """Counts how often a node may have got room for something, be it only CPU."""
        self._numbers = NodeNumbers(self._forget_numbers)
        self._inventories = Inventories(unit_mib, slices_per_gpu, gpushare)
        self.stock = self._inventories.stock
        self._interned: Remembered[Requests, Requests] = Remembered(INTERNED, 2**17, len)

    # -- nodes

    def node(self, name: str) -> NodeState:
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = NodeState(name, self._numbers.take())
        return found

    def _forget_numbers(self, gone: int) -> None:
        """Nobody is to remember the nodes that had these numbers (bits)."""
        for pod in self.pods.values():
            if pod.excluded:
                pod.excluded &= ~gone
        for uid, nodes in self.excluded.items():
            self.excluded[uid] = nodes & ~gone

    def takes_pods(self, name: str) -> NodeBooks | None:
        """The books of a node that takes new pods, None of any other."""
        state = self.nodes.get(name)
        return state.books if state is not None and state.seen and not state.problem else None

    def all_but(self, nodes: Collection[str]) -> int:
        """The known nodes that are not among these (of as many as there are, all are): bits by node number."""
        if len(nodes) >= len(self.nodes):
            return 0
        return self._numbers.bits([self.nodes[name].number for name in self.nodes.keys() - frozenset(nodes)])

    def set_node(self, node: Node, allocatable: Mapping[str, int], leaving: str = "") -> bool:
        """Take over a node object; returns whether anything that matters changed. `leaving`: by what it is to go."""
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
        state.problem = state.fault or (f"it is about to go, as {leaving} says" if leaving else "")
        self.leaving.pop(state.name, None)
        if leaving:
            self.leaving[state.name] = None

    def _place_again(self, name: str) -> None:
        """The node may have other GPUs now: its pods are on those that their allocations say."""
        for uid in sorted(self.on_node.get(name, ())):
            pod = self.pods.get(uid)
            if pod is not None and pod.state != "held":
                self._place(pod)
                self._told_moved(pod)

    def set_unhealthy(self, name: str, minors: frozenset[int]) -> None:
        self._inventories.set_unhealthy(name, minors)
        state = self.nodes.get(name)
        if state is not None and state.books is not None:
            self._inventories.mark(state, state.books.inventory)
            state.version += 1
            self.freed += 1
            self._changed(name, True, True)

    def drop_node(self, name: str) -> None:
        """The node is gone; pods that are still said to be on it stay so."""
        state = self.nodes.get(name)
        if state is not None:
            state.seen, state.books, state.inventory_text, state.fault = False, None, None, ""
            self._set_leaving(state, "")
            state.version += 1
            self.stock.put(name, None)
            self._let_go(state)
        self._changed(name, False, True)

    def _let_go(self, state: NodeState) -> None:
        if not state.seen and state.name not in self.on_node:
            del self.nodes[state.name]
            self._numbers.give_back(state.number)

    # -- pods

    def pod(self, ref: PodRef, now: float) -> PodState:
        found = self.pods.get(ref.uid)
        if found is None:
            found = self.pods[ref.uid] = PodState(ref, now)
        return found

    def intern(self, requests: Iterable[tuple[str, int]]) -> Requests:
        """The same tuple for equal requests: pods come from few templates."""
        value = tuple(requests)
        return self._interned.get(value) or self._interned.put(value, value)

    def bind(self, pod: PodState, node: str, change: Change) -> None:
        """Put a pod on a node with what `pod.allocation` says (nothing or nonsense: wherever it could be)."""
        before = self._go(pod, node, change)
        self._place(pod)
        self._moved(pod, before)

    def hold(self, pod: PodState, node: str, charges: Mapping[str, Demand]) -> None:
        """A soft charge: GPUs of the node are kept for the pod for a moment."""
        before = self._go(pod, node, Change.HELD)
        books = self.node(node).books
        if books is not None and pod.ask is not None:
            books.hold(pod.ref.uid, pod.ask, charges)
        self._moved(pod, before)

    def unbind(self, pod: PodState) -> None:
        """Take a pod off its node."""
        before = self._leave(pod)
        if before is not None:
            pod.move(Change.RELEASED)
            self._left(pod, before[0])
            self._told_moved(pod)

    def unbook(self, pod: PodState) -> None:
        """Its Binding is not written: nothing of what was picked for the pod is its own."""
        self.unbind(pod)  # first: if that fails, the pod still has what is booked for it
        pod.allocation = pod.text = None

    def resize(self, pod: PodState, requests: tuple[tuple[str, int], ...]) -> None:
        """The pod takes other amounts in-tree from now on."""
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
        self._told_moved(pod)

    def _go(self, pod: PodState, node: str, change: Change) -> tuple[str, Mapping[str, Demand]] | None:
        """Put a pod on a node; returns what `_leave` does. KeyError, with nothing changed, if it may not."""
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
        """Tell of the node that the pod is on now, and of the one that it left."""
        if before is not None and before[0] != pod.node:
            self._left(pod, before[0])
        less = pod.ask is not None and before is not None and before != (pod.node, self.charges(pod))
        self.freed += less
        self._told_moved(pod)
        self._changed(pod.node, less, True)

    def _left(self, pod: PodState, node: str) -> None:
        self.freed += 1
        self._changed(node, pod.ask is not None, True)

    def charges(self, pod: PodState) -> Mapping[str, Demand]:
        """What is booked for a pod on the GPUs of its node."""
        state = self.nodes.get(pod.node)
        entry = state.books.entries.get(pod.ref.uid) if state and state.books else None
        return entry.charges if entry else {}

    def _leave(self, pod: PodState) -> tuple[str, Mapping[str, Demand]] | None:
        """Take a pod off its node; returns which that was and what the pod held there, None if it had none."""
        if not pod.node:
            return None
        before = (pod.node, self.charges(pod))
        state, here = self.nodes.get(pod.node), self.on_node[pod.node]
        if state is not None and state.books is not None:
            state.books.release(pod.ref.uid)  # first: if that fails, the pod is still where it was
        here.pop(pod.ref.uid, None)
        if not here:
            del self.on_node[pod.node]
        if state is not None:
            state.version += 1
            add(state.used, pod.requests, -1)
            self._let_go(state)
        pod.node, pod.unusable = "", False
        return before

    def _place(self, pod: PodState) -> None:
        books = self.node(pod.node).books
        if pod.ask is None or books is None:
            return
        known = pod.allocation
        if self.gpushare and known and any(map(inventory.made_up, known.uuids())) != made_up(books.inventory):
            known = None
        usable = books.place(pod.ref.uid, pod.ask, known)
        pod.unusable = known is not None and not usable

    # -- after an error of ours

    def set_aside(self, name: str, why: str) -> None:
        """The node takes nobody new until it is told anew; what is on it stays booked."""
        state = self.nodes.get(name)
        if state is not None:
            state.seen, state.inventory_text = False, None
            state.fault = state.problem = why
            state.version += 1
            self._changed(name, False, True)

    def rebuild(self, name: str) -> None:
        """Book anew who is on a node: soft charges as they were, everybody else where their allocations say."""
        state = self.nodes[name]
        here = [
            pod for uid in sorted(self.on_node.get(name, ())) if (pod := self.pods.get(uid) or self.keepers.get(uid))
        ]
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
