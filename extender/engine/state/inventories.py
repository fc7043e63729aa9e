"""Inventories of nodes: keeps the nodes' books and the stock of the cluster in step with them."""

from __future__ import annotations

from extender.engine.state.node_state import NodeState
from extender.engine.state.stock import Stock
from protos.contract import codec, cordon, inventory
from protos.contract.books import NodeBooks
from protos.contract.inventory import Inventory
from protos.contract.objects import Node


class Inventories:
    """Reads the inventories of nodes, and marks GPUs that are cordoned or unhealthy.

    It owns the stock, which has the GPUs of a node if and only if the node has books.
    """

    def __init__(self, unit_mib: int, slices_per_gpu: int, gpushare: bool) -> None:
        self._unit_mib, self._slices_per_gpu, self._gpushare = unit_mib, slices_per_gpu, gpushare
        self.stock = Stock()
        self._unhealthy: dict[str, frozenset[int]] = {}
        """GPU minors by node; the node need not exist."""

    def read(self, state: NodeState, node: Node) -> bool:
        """Read the node's inventory; returns whether its books were created or changed."""
        state.fault, state.cordon_fault = "", None
        try:
            found = inventory.decode(state.inventory_text)
        except codec.ContractError as error:
            state.fault = str(error)
            return False
        if found is None and self._gpushare:
            found = inventory.from_gpushare(node.status.capacity, self._unit_mib, self._slices_per_gpu)
        if found is None:
            state.books = None
            self.stock.put(state.name, None)
            return False
        if found.unit_mib != self._unit_mib:
            state.fault = f"it counts GPU memory in units of {found.unit_mib} MiB, the cluster in {self._unit_mib} MiB"
        self.mark(state, found)
        return True

    def mark(self, state: NodeState, found: Inventory) -> None:
        """Set the node's GPUs, and mark those that take no new pods."""
        unhealthy = self._unhealthy.get(state.name, frozenset())
        marks = cordon.marks(state.cordoned) | {gpu.uuid for gpu in found.gpus if gpu.minor in unhealthy}
        state.cordon_fault = cordon.unreadable(state.cordoned, found)
        self.stock.put(state.name, found)
        if state.books is None:
            state.books = NodeBooks(found, marks)
        else:
            state.books.set_inventory(found, marks)

    def set_unhealthy(self, name: str, minors: frozenset[int]) -> None:
        """Set the unhealthy GPUs of a node; `mark` applies them."""
        self._unhealthy.pop(name, None)
        if minors:
            self._unhealthy[name] = minors
