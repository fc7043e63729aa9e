"""Checks the books against the pods, and reports violations in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.types.amounts import add
from protos.contract.ask import Demand
from protos.contract.books import NodeBooks
from protos.contract.quantity import amount_of_memory


def wrong(ledger: Ledger, nodes: Iterable[str] | None = None) -> list[str]:
    """The violations in the books of these nodes (None: all nodes)."""
    violations: list[str] = []
    for name in list(ledger.nodes) if nodes is None else nodes:
        node = ledger.nodes.get(name)
        if node is not None and node.books is not None:
            violations += _of_node(ledger, node, node.books)
    return violations


def _of_node(ledger: Ledger, node: NodeState, books: NodeBooks) -> Iterator[str]:
    for uid in books.entries:
        pod = ledger.pods.get(uid) or ledger.keepers.get(uid)
        if pod is None:
            yield f"{node.name} holds GPUs for {uid}, which is no live pod"
        elif pod.node != node.name or pod.state == "waiting":
            yield f"{node.name} holds GPUs for {pod.ref}, which is {pod.state} on {pod.node or 'no node'}"
    total: dict[str, int] = {}
    for uid in ledger.on_node.get(node.name, ()):
        pod = ledger.pods.get(uid) or ledger.keepers.get(uid)
        if pod is None:
            continue
        add(total, pod.requests)
        in_books = uid in books.entries or uid not in ledger.pods
        if not in_books and pod.state in ("binding", "bound") and pod.ask is not None:
            yield f"{node.name} holds no GPUs for {pod.ref}, which is {pod.state} there"
    if {resource: amount for resource, amount in node.used.items() if amount} != total:
        yield f"{node.name}: in-tree totals are {node.used}, its pods take {total}"
    booked_on: dict[str, list[Demand]] = {}
    for entry in books.entries.values():
        for uuid, demand in entry.charges.items():
            booked_on.setdefault(uuid, []).append(demand)
    for uuid, book in books.gpus.items():
        charges = booked_on.get(uuid, [])
        if not (charges or book.mem_used or book.slices_used or book.wholes or book.sharers):
            continue
        held = sum(c.mem for c in charges), sum(c.slices for c in charges), sum(c.whole for c in charges)
        if (book.mem_used, book.slices_used, book.wholes) != held or book.wholes + book.sharers != len(charges):
            mem = amount_of_memory(book.mem_used, books.inventory.unit_mib)
            booked = f"{mem}, {book.slices_used} slices and {book.wholes} times the whole"
            yield f"{node.name} {uuid}: booked are {booked}, held {held} by {len(charges)} pods"
        if min(book.mem_used, book.slices_used, book.wholes, book.sharers) < 0:
            yield f"{node.name} {uuid}: less than nothing is booked"
