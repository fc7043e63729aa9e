"""One node: the books of its GPUs, and the totals of the resources that kube-scheduler counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protos.contract.books import NodeBooks
from protos.contract.objects import Taint
from protos.contract.reason import Reason


class NodeState:
    """One node: the books of its GPUs if it has an inventory, and its in-tree totals."""

    __slots__ = (
        "allocatable", "books", "cordon_fault", "cordoned", "fault", "inventory_text", "labels", "leaving", "name",
        "number", "present", "problem", "seen", "taints", "told", "unschedulable", "used", "version",
    )  # fmt: skip

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        """Its bit in sets of nodes. A number is reused only after the node is gone and removed from all sets."""
        self.seen = False
        """False while only pods name the node and no Node object was seen."""
        self.books: NodeBooks | None = None
        self.inventory_text: str | None = None
        self.fault = ""
        """Why its inventory is unusable, "" if it is usable."""
        self.leaving = ""
        """The taint or label that marks it to go, "" if there is none."""
        self.problem = ""
        """Why it takes no new pods, "" if it does."""
        self.cordoned = ""
        """The annotation with its cordoned GPUs."""
        self.cordon_fault: Reason | None = None
        """Entries of that annotation that name no GPU."""
        self.told: tuple[Reason, ...] = ()
        """What is wrong with its inventory and with what operators wrote on it, as Events have told."""
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.unschedulable = False
        self.allocatable: Mapping[str, int] = {}
        self.used: dict[str, int] = {}
        """In-tree requests of all pods on it, whatever their scheduler (cpu in thousandths of a core)."""
        self.version = 0
        """Grows with each change of the node, its books and its totals."""
        self.present: Any = None
        """What `score.Scorer` remembers of it."""

    def room(self, resource: str) -> int:
        return self.allocatable.get(resource, 0) - self.used.get(resource, 0)
