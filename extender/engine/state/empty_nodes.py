"""The kinds of nodes in the cluster, and what nodes of each kind could take if they were empty.

Nodes whose GPUs are alike are one kind; their CPU and memory may differ, and the largest amounts count. So a node may
take less than its kind, and what no kind could take fits on no node. Updates cost only the nodes that changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache

import msgspec

from extender.engine.state.node_state import NodeState
from protos.contract import mig
from protos.contract.ask import ContainerAsk, PodAsk
from protos.contract.books import NodeBooks
from protos.contract.inventory import HEALTHY, IN_MIG_MODE, Inventory
from protos.contract.isolation import PROMISED, Isolation
from protos.contract.selection import Selection
from protos.contract.signature import Kind

Content = tuple[Inventory | None, Mapping[str, int]]
"""The inventory and the allocatable amounts of a node."""
IN_TREE = ("cpu", "memory")
"""The resources compared besides GPUs: every node has them from the start."""
ELSEWHERE = Kind(0, (), "ready", (), ())
"""The kind of nodes whose whole GPUs another device plugin serves."""


class NodeKind:
    """Nodes whose GPUs are alike."""

    def __init__(self, inventory: Inventory | None) -> None:
        """`inventory`: that of one of the nodes; None for nodes whose whole GPUs another device plugin serves."""
        self.books = NodeBooks(_empty(inventory)) if inventory is not None else None
        self.nodes: dict[str, Mapping[str, int]] = {}
        """The allocatable amounts, by node."""
        self._amounts: dict[str, Counter[int]] = {}
        """How many nodes have each amount, by resource."""
        self.most: dict[str, int] = {}
        """The largest amount, by resource."""

    def put(self, name: str, amounts: Mapping[str, int] | None) -> bool:
        """Set the amounts of a node, None if it is gone; returns whether a largest amount changed."""
        before, had = self.nodes.pop(name, {}), dict(self.most)
        if amounts is not None:
            self.nodes[name] = amounts
        for resource, amount in (amounts or {}).items():
            self._amounts.setdefault(resource, Counter())[amount] += 1
            self.most[resource] = max(amount, self.most.get(resource, 0))
        for resource, amount in before.items():
            counts = self._amounts[resource]
            counts[amount] -= 1
            if not counts[amount]:
                del counts[amount]
                self.most[resource] = max(counts, default=0)
        return had != self.most

    def having(self, resource: str) -> str:
        """A node with the largest amount."""
        return next(name for name, amounts in self.nodes.items() if amounts.get(resource, 0) == self.most[resource])

    @property
    def isolation(self) -> Isolation:
        """How they isolate parts of GPUs."""
        return self.books.inventory.enforced if self.books is not None else PROMISED

    def able(self, ask: ContainerAsk, selection: Selection) -> int:
        """How many GPUs of one such empty node could each be one of the container's."""
        if self.books is None:
            return self.most.get(ask.whole, 0) if ask.whole and of_others(ask) else 0
        books = self.books
        demands = ((book, books.demand(ask, book.gpu)) for book in books.eligible(selection))
        return sum(demand is not None and book.fits(demand) for book, demand in demands)

    def fits(self, ask: PodAsk) -> bool:
        """Whether one such node might take the pod, as far as numbers of GPUs and sums of parts say; UUIDs aside."""
        if self.books is None:
            wanted = elsewhere(ask)
            return wanted is not None and all(self.most.get(each, 0) >= amount for each, amount in wanted.items())
        selection = msgspec.structs.replace(ask.selection, uuids=())
        if any(self.able(container, selection) < container.gpus for container in ask.containers):
            return False
        eligible = self.books.eligible(selection)
        together = [container for container in ask.containers if container.kind != "init"]
        demands = [(each, self.books.demand(each, eligible[0].gpu)) for each in together]
        slices = sum(each.gpus * demand.slices for each, demand in demands if demand is not None)
        mem = sum(each.gpus * each.mem for each in together)
        per_gpu = self.books.inventory.slices_per_gpu
        return slices <= per_gpu * len(eligible) and mem <= sum(book.gpu.mem for book in eligible)


def of_others(ask: ContainerAsk) -> bool:
    """Whether another device plugin knows such requests; it knows no profile but by the name of a resource."""
    return not ask.profile or ask.whole.startswith(mig.PREFIX)


def elsewhere(ask: PodAsk) -> Mapping[str, int] | None:
    """The GPUs, by resource, that a node without inventory needs for the pod; None if no such node serves the pod.

    Its own device plugin serves whole GPUs only, of any kind.
    """
    if ask.selection.selective or not ask.only_whole:
        return None
    if not all(map(of_others, ask.containers)):
        return None
    wanted: dict[str, int] = {}
    for container in ask.containers:
        if container.kind != "init":
            wanted[container.whole] = wanted.get(container.whole, 0) + container.gpus
    return wanted or None


class EmptyNodes:
    """The nodes that are ready or may become so, by kind."""

    def __init__(self, nodes: Mapping[str, NodeState], gpus: Collection[str]) -> None:
        """`gpus`: the resources of whole GPUs."""
        self._nodes, self._gpus = nodes, frozenset(gpus)
        self._kinds: dict[Kind, NodeKind] = {}
        self._known: dict[str, tuple[Content, Kind]] = {}
        self.generation = 0
        """Counts changes of the kinds, and of their largest amounts."""

    @property
    def kinds(self) -> Collection[NodeKind]:
        return self._kinds.values()

    def changed(self, name: str) -> None:
        """The node was added, changed or removed, or bookings on it changed."""
        before, now = self._known.get(name), self._content(name)
        if before is not None and now is not None and before[0][0] is now[0] and before[0][1] is now[1]:
            return
        after = self._kind(name) if now is not None else None
        if before is not None and before[1] != after:
            del self._known[name]
            self._put(before[1], name, None)
        if now is not None and after is not None:
            self._known[name] = now, after
            if after not in self._kinds:
                self._kinds[after] = NodeKind(now[0])
            self._put(after, name, {each: now[1][each] for each in now[1] if each in IN_TREE or self._is_gpu(each)})

    def _is_gpu(self, resource: str) -> bool:
        """Whether it is of whole GPUs or MIG instances."""
        return resource in self._gpus or resource.startswith(mig.PREFIX)

    def _content(self, name: str) -> Content | None:
        node = self._nodes.get(name)
        if node is None or not node.seen or node.fault:
            return None
        if node.books is None:
            served = any(amount and self._is_gpu(each) for each, amount in node.allocatable.items())
            return (None, node.allocatable) if served else None
        return (node.books.inventory, node.allocatable) if node.books.gpus else None

    def _kind(self, name: str) -> Kind:
        books = self._nodes[name].books
        return _ready(books.kind) if books is not None else ELSEWHERE

    def _put(self, key: Kind, name: str, amounts: Mapping[str, int] | None) -> None:
        changed = self._kinds[key].put(name, amounts)
        gone = not self._kinds[key].nodes
        if gone:
            del self._kinds[key]
        self.generation += changed or gone


@lru_cache(maxsize=1024)
def _ready(kind: Kind) -> Kind:
    """The same with a ready plugin and healthy GPUs."""
    gpus = tuple((*gpu[:-1], healthy(gpu[-1])) for gpu in kind.gpus)
    return msgspec.structs.replace(kind, state="ready", gpus=gpus)


def healthy(health: str) -> str:
    """The health of a GPU that recovers; MIG mode is none of its faults."""
    return health if health == IN_MIG_MODE else HEALTHY


def _empty(inventory: Inventory) -> Inventory:
    """The same GPUs, all healthy."""
    gpus = tuple(msgspec.structs.replace(gpu, health=healthy(gpu.health)) for gpu in inventory.gpus)
    return msgspec.structs.replace(inventory, gpus=gpus, state="ready")
