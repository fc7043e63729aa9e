"""The queues as their objects declare them, and the labels of namespaces: what the tree of queues is made of."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from extender.engine.queueing.queue_tree import RANK, QueueTree
from protos.contract.queue import Queue


class DeclaredQueues:
    """What is said of queues and namespaces; of several queues of a name one counts, by its source."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Queue]] = {}
        """By name and source."""
        self._namespaces: dict[str, Mapping[str, str]] = {}
        """Their labels."""

    def put(self, queue: Queue) -> tuple[Queue | None, Queue]:
        """The queue is there, or another one now; returns what was known of it, and is: the same if nothing changed.

        One that cannot be read stays what it was, with its problem; nothing starts in it if it never could be read.
        """
        known = self._known.setdefault(queue.name, {})
        before = known.get(queue.source)
        if queue.problem:
            former = before if before is not None else msgspec.structs.replace(queue, closed=True)
            selector = queue.namespace_selector or former.namespace_selector
            queue = msgspec.structs.replace(former, problem=queue.problem, namespace_selector=selector)
        if before is not None and queue == before:
            return before, before
        known[queue.source] = queue
        return before, queue

    def drop(self, source: str, name: str) -> bool:
        """The queue is gone; returns whether it was there."""
        known = self._known.get(name, {})
        found = known.pop(source, None) is not None
        if found and not known:
            del self._known[name]
        return found

    def label(self, namespace: str, labels: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """The namespace has these labels now, None if nobody knows them; returns those that it had."""
        before = self._namespaces.pop(namespace, None)
        if labels is not None:
            self._namespaces[namespace] = labels
        return before

    def tree(self, former: QueueTree | None = None) -> QueueTree:
        """The queues that count, as a tree; what was due to those of a former one still is."""
        best = [self._known[name][min(self._known[name], key=RANK.__getitem__)] for name in sorted(self._known)]
        tree = QueueTree(best, self._namespaces)
        for name, queue_node in former.nodes.items() if former is not None else ():
            if name in tree.nodes:
                tree.nodes[name].due = queue_node.due
        return tree


def alike(one: Queue, other: Queue) -> bool:
    """Whether these are the same but for how much they may have, and when."""
    limits = {name: getattr(other, name) for name in ("weight", "priority", "guarantee", "deserved", "capability")}
    return msgspec.structs.replace(one, **limits) == other
