"""What nodes have for queues: what can be given, and of all else what is held.

GPUs that are sick, gone, in MIG mode or cordoned are nobody's due, and neither is anything of a node that takes no new
pods. Amounts are as queues count them.
"""

from __future__ import annotations

from collections import Counter

from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.state.stock import GpuKind, kind
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.queue import GPU, GPUS
from protos.contract.selection import Selection, suits


class Supply:
    """Kept node by node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._withheld: dict[str, Counter[GpuKind]] = {}
        """By node of which not everything can be given: the GPUs that are neither given nor held."""
        self._in_all: Counter[GpuKind] = Counter()

    def partial(self, name: str) -> bool:
        """Whether not everything of the node can be given: then it matters what is held there."""
        return name in self._withheld

    def of_node(self, name: str) -> dict[str, int]:
        """What the node has now; nothing if it is gone."""
        self._in_all.subtract(self._withheld.pop(name, ()))
        node = self._ledger.nodes.get(name)
        withheld: Counter[GpuKind] = Counter()
        has: dict[str, int] = {}
        if node is not None and node.seen:
            closed = node.unschedulable or bool(node.leaving)
            has = _used(node) if closed else dict(node.allocatable)
            if node.books is not None:
                withheld = _withheld(node.books, closed or bool(node.problem))
                has[GPUS] = len(node.books.gpus) * GPU - withheld.total()
            if closed or withheld:
                self._withheld[name] = withheld
        self._in_all.update(withheld)
        self._in_all = +self._in_all
        return has

    def of_class(self, selection: Selection) -> int:
        """The GPUs of all nodes that are of a class."""
        there = self._ledger.stock.matching(selection)[0] * GPU
        return there - sum(amount for found, amount in self._in_all.items() if suits(selection, found))


def _used(node: NodeState) -> dict[str, int]:
    return {resource: min(most, node.used.get(resource, 0)) for resource, most in node.allocatable.items()}


def _withheld(books: NodeBooks, closed: bool) -> Counter[GpuKind]:
    """What of its GPUs is neither given nor held."""
    closed = closed or books.inventory.state != "ready"
    found: Counter[GpuKind] = Counter()
    for book in books.gpus.values():
        if closed or not book.offered:
            found[kind(book.gpu)] += GPU - _held(book)
    return +found


def _held(book: GpuBook) -> int:
    """What of a GPU is held: the larger of its parts of memory and of time."""
    if book.wholes:
        return GPU
    by_mem = book.mem_used * GPU // max(1, book.gpu.mem)
    return min(GPU, max(by_mem, book.slices_used * GPU // max(1, book.slices_per_gpu)))
