"""One node: its GPUs' books and its totals of the resources that kube-scheduler itself counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protos.contract.books import NodeBooks
from protos.contract.objects import Taint


class NodeState:
    """One node: its GPUs' books where it has any, and its in-tree totals."""

    __slots__ = (
        "allocatable", "books", "cordoned", "fault", "inventory_text", "labels", "leaving", "name", "number", "present",
        "problem", "seen", "taints", "unschedulable", "used", "version",
    )  # fmt: skip

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        """Its bit in sets of nodes. Another node has it only once this one is gone, and forgotten in all sets."""
        self.seen = False
        """False while only pods speak of it."""
        self.books: NodeBooks | None = None
        self.inventory_text: str | None = None
        self.fault = ""
        """Why its inventory is of no use, "" if it is."""
        self.leaving = ""
        """The taint or label by which it is about to go, "" if it is not."""
        self.problem = ""
        """Why it takes no new pods, "" if it does."""
        self.cordoned = ""
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()
        self.unschedulable = False
        self.allocatable: Mapping[str, int] = {}
        self.used: dict[str, int] = {}
        """In-tree requests of all pods on it, whatever their scheduler (cpu in thousandths of a core)."""
        self.version = 0
        """Counts what changed of the node, its books and its totals."""
        self.present: Any = None
        """What `score.Scorer` remembers of it."""

    def room(self, resource: str) -> int:
        return self.allocatable.get(resource, 0) - self.used.get(resource, 0)
