"""The queues as their objects declare them, and the tree of them: which pods are in which, and the fair share of each.

Queues whose parent is missing, or that are their own ancestors, hang below the root. A queue may select the namespaces
that it admits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from extender.engine.queueing import shares
from extender.engine.queueing.queue_node import ALWAYS, LocalQueue, QueueNode
from extender.engine.queueing.shares import QueueDemand
from extender.engine.types.amounts import add
from protos.contract.bounds import QUEUE_DEPTH, QUEUE_DIVIDED
from protos.contract.queue import DEFAULT, GPUS, Queue
from protos.contract.queue_sources import SOURCES
from protos.contract.selector import Selector

SAME = 0.5
"""Amounts that differ by less are equal: the smallest amount is 1."""
RANK = {source.api_version: place for place, source in enumerate(SOURCES)}
"""Of several queues of a name the one with the lowest rank counts."""


class QueueTree:
    """The queues from the root downwards. A change of the set of queues needs another tree."""

    def __init__(self, queues: Iterable[Queue], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """`namespaces`: their labels, kept up to date by the caller."""
        self._namespaces = namespaces
        self.root = QueueNode(Queue(name="", source=""))
        self.nodes = {queue.name: QueueNode(queue) for queue in queues}
        self._nameable = any("/" not in name for name in self.nodes)
        self.nodes.setdefault(DEFAULT, QueueNode(ALWAYS))
        for queue_node in self.nodes.values():
            queue_node.above = self._parent(queue_node) or self.root
            queue_node.above.below.append(queue_node)
        downwards = [self.root]
        for queue_node in downwards:
            downwards += queue_node.below
            for below in queue_node.below:
                below.shut = below if below.queue.closed else queue_node.shut
                add(queue_node.idle, ((resource, below.unmet(resource)) for resource in below.queue.guarantee))
        self._downwards: Sequence[QueueNode] = downwards
        """The root and all queues, each before those below it."""
        last = sorted(self.nodes.values(), key=lambda node: (RANK.get(node.queue.source, 0), node.name), reverse=True)
        self._of_namespace = {namespace: node for node in last for namespace in node.queue.namespaces}
        self.fair: frozenset[str] = frozenset()
        """The resources that are divided: GPUs, and each that a queue has guaranteed or deserves."""
        self.divided()

    def _parent(self, queue_node: QueueNode) -> QueueNode | None:
        """The queue above, None if that is the root; sets `misplaced` if another one is named."""
        named = queue_node.queue.parent
        if not named:
            return None
        above = at = self.find(named, own_namespace(queue_node))
        if at is None:
            queue_node.misplaced = f"its parent {named} does not exist: it hangs below the root"
        seen: set[str] = set()
        while at is not None and at is not queue_node and at.name not in seen and len(seen) < QUEUE_DEPTH.most:
            seen.add(at.name)
            at = self.find(at.queue.parent, own_namespace(at)) if at.queue.parent else None
        if at is queue_node:
            queue_node.misplaced = f"its parent {named} hangs below it: it hangs below the root"
        elif len(seen) == QUEUE_DEPTH.most:
            queue_node.misplaced = f"{QUEUE_DEPTH.most} queues or more are above it: it hangs below the root"
        elif above is not None and (own := own_namespace(queue_node)) and not self.admits(above, own):
            queue_node.misplaced = f"its parent {named} does not admit namespace {own}: it hangs below the root"
        return None if queue_node.misplaced else above

    # -- the queues of pods

    def find(self, name: str, namespace: str) -> QueueNode | None:
        """The queue of that name, else the ElasticQuota of that name in the namespace."""
        return self.nodes.get(name) or self.nodes.get(f"{namespace}/{name}")

    def settle(self, local_queue: LocalQueue) -> None:
        """Find the queue of a local queue: the named one, else that of its namespace, else `default`.

        Its pods want the first of these, and are in the first that admits their namespace. A named queue that does not
        exist is missing only if there are queues that can be named.
        """
        named = self.find(local_queue.named, local_queue.namespace) if local_queue.named else None
        local_queue.missing = named is None and bool(local_queue.named) and self._nameable
        default = self.nodes[DEFAULT]
        wanted = [each for each in (named, self._of_namespace.get(local_queue.namespace), default) if each is not None]
        admitting = (each for each in wanted if self.admits(each, local_queue.namespace))
        at = next(admitting, None)
        local_queue.at, local_queue.refused = at or default, "" if at is wanted[0] else wanted[0].name
        if local_queue.refused:
            wanted[0].strangers.append(local_queue)

    def admits(self, queue_node: QueueNode, namespace: str) -> bool:
        """Whether pods of this namespace may use the queue; an ElasticQuota admits its own only."""
        own = own_namespace(queue_node)
        if own:
            return own == namespace
        return selects(queue_node.queue.namespace_selector, self._namespaces.get(namespace))

    def refill(self, local_queue: LocalQueue) -> None:
        """Add all pods of a local queue to its queue and those above."""
        allocated, requested = tuple(local_queue.allocated.items()), tuple(local_queue.requested.items())
        if local_queue.at.shut is not None:
            requested = allocated
        add(local_queue.at.own, requested)
        for queue_node in local_queue.at.upwards:
            queue_node.ask(requested, 1, local_queue.running + local_queue.waiting)
            queue_node.place(allocated, 1, local_queue.running)

    def distinguishes(self, labels: Mapping[str, str] | None, others: Mapping[str, str] | None) -> bool:
        """Whether any queue admits only one of two namespaces with these labels."""
        selectors = [queue_node.queue.namespace_selector for queue_node in self.nodes.values()]
        return any(selects(each, labels) != selects(each, others) for each in selectors)

    # -- fair shares

    def divided(self) -> None:
        queues = [queue_node.queue for queue_node in self.nodes.values()]
        named = {GPUS}.union(*((*queue.guarantee, *queue.deserved) for queue in queues))
        fair = sorted(named, key=lambda resource: (resource != GPUS, resource))
        self.fair = frozenset(fair[: QUEUE_DIVIDED.most])

    def divide(self, capacity: Mapping[str, int]) -> list[str]:
        """Compute all fair shares; return the names of the queues whose fair share changed."""
        before = {name: queue_node.due for name, queue_node in self.nodes.items()}
        for queue_node in self._downwards:
            queue_node.contested, queue_node.own_due, queue_node.due = frozenset(), {}, {}
        for resource in sorted(self.fair):
            self._divide_one(resource, capacity.get(resource, 0))
        changed = [name for name, queue_node in self.nodes.items() if queue_node.due != before[name]]
        for name in changed:
            self.nodes[name].known_part = None
        return changed

    def _divide_one(self, resource: str, amount: float) -> None:
        """Divide each queue's fair share among those below it; its own pods count as one queue of weight 1."""
        asked: dict[str, float] = {}
        for queue_node in reversed(self._downwards):
            in_all = queue_node.own.get(resource, 0) + sum(asked[below.name] for below in queue_node.below)
            asked[queue_node.name] = min(in_all, queue_node.queue.capability.get(resource, in_all))
        for above in self._downwards:
            if above.below:
                demands = [_demand(queue_node.queue, resource, asked[queue_node.name]) for queue_node in above.below]
                demands.append(QueueDemand(above.own.get(resource, 0)))
                parts = shares.divide(amount if above is self.root else above.due[resource], demands)
                for queue_node, part in zip(above.below, parts, strict=False):
                    queue_node.due[resource] = part
                above.own_due[resource] = parts[-1]
                if sum(parts) < sum(demand.asked for demand in demands) - SAME:
                    above.contested |= {resource}


class DeclaredQueues:
    """The declared queues and the labels of namespaces. Of several queues of a name one counts, by its source."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], Queue] = {}
        """By name and source."""
        self._namespaces: dict[str, Mapping[str, str]] = {}

    def put(self, queue: Queue) -> tuple[Queue | None, Queue]:
        """Add or replace a queue; return what it was and what it is: the same object if nothing changed.

        A queue that cannot be read keeps its former values, with its problem; it is closed if it has none.
        """
        before = self._queues.get((queue.name, queue.source))
        if queue.problem:
            former = before if before is not None else msgspec.structs.replace(queue, closed=True)
            selector = queue.namespace_selector or former.namespace_selector
            queue = msgspec.structs.replace(former, problem=queue.problem, namespace_selector=selector)
        if before is not None and queue == before:
            return before, before
        self._queues[queue.name, queue.source] = queue
        return before, queue

    def drop(self, source: str, name: str) -> bool:
        """Remove a queue; return whether it was there."""
        return self._queues.pop((name, source), None) is not None

    def label(self, namespace: str, labels: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Set the labels of a namespace, None if they are unknown; return those that it had."""
        before = self._namespaces.pop(namespace, None)
        if labels is not None:
            self._namespaces[namespace] = labels
        return before

    def tree(self, former: QueueTree | None = None) -> QueueTree:
        """The queues that count, as a tree; fair shares are taken over from a former one."""
        ranked = sorted(self._queues.values(), key=lambda queue: (queue.name, -RANK[queue.source]))
        tree = QueueTree({queue.name: queue for queue in ranked}.values(), self._namespaces)
        for name, queue_node in former.nodes.items() if former is not None else ():
            if name in tree.nodes:
                tree.nodes[name].due = queue_node.due
        return tree


def alike(one: Queue, other: Queue) -> bool:
    """Whether two queues differ at most in their amounts, weight and priority."""
    limits = {name: getattr(other, name) for name in ("weight", "priority", "guarantee", "deserved", "capability")}
    return msgspec.structs.replace(one, **limits) == other


def selects(selector: Selector | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a namespace with these labels is selected; None: the labels are unknown."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return True
    return labels is not None and selector.selects(labels)


def own_namespace(queue_node: QueueNode) -> str:
    """The namespace of an ElasticQuota, "" for other queues."""
    return queue_node.name.rpartition("/")[0]


def _demand(queue: Queue, resource: str, asked: float) -> QueueDemand:
    guarantee, deserved = queue.guarantee.get(resource, 0), queue.deserved.get(resource, 0)
    return QueueDemand(asked, queue.weight, queue.priority, guarantee, deserved)
