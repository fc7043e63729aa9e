"""The tree of queues: which hangs below which, which pods are in which, and what is due to each.

Queues whose parent is missing, or that are their own ancestors, hang below the root. A queue may select the namespaces
that it admits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from extender.engine.queueing import shares
from extender.engine.queueing.queue_node import ALWAYS, LocalQueue, QueueNode
from extender.engine.queueing.shares import QueueDemand
from extender.engine.types.amounts import add
from protos.contract.bounds import QUEUE_DEPTH, QUEUE_DIVIDED
from protos.contract.queue import DEFAULT, GPUS, Queue
from protos.contract.queue_sources import SOURCES
from protos.contract.selector import Selector

SAME = 0.5
"""Amounts that differ by less are the same: the smallest there are is 1."""
RANK = {source.api_version: place for place, source in enumerate(SOURCES)}
"""Of several queues of a name the first of these counts."""


class QueueTree:
    """All queues, from the root downwards. Another set of queues makes another tree."""

    def __init__(self, queues: Iterable[Queue], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """`namespaces`: their labels, kept up to date by the caller."""
        self._namespaces = namespaces
        self.root = QueueNode(Queue(name="", source=""))
        self.nodes = {queue.name: QueueNode(queue) for queue in queues}
        """By name."""
        self._nameable = any("/" not in name for name in self.nodes)
        self.nodes.setdefault(DEFAULT, QueueNode(ALWAYS))
        self._hang()
        last = sorted(self.nodes.values(), key=lambda node: (RANK.get(node.queue.source, 0), node.name), reverse=True)
        self._of_namespace = {namespace: node for node in last for namespace in node.queue.namespaces}
        self.fair: frozenset[str] = frozenset()
        """The resources that are divided: GPUs, and whatever a queue is guaranteed or deserves."""
        self.divided()

    def _hang(self) -> None:
        """Every queue below another, or the root."""
        for queue_node in self.nodes.values():
            queue_node.above = self._parent(queue_node) or self.root
            queue_node.above.below.append(queue_node)
            add(queue_node.above.idle, queue_node.queue.guarantee.items())
        downwards = [self.root]
        for queue_node in downwards:
            downwards += queue_node.below
        self._downwards: Sequence[QueueNode] = downwards
        """The root and all queues, each before those below it."""

    def _parent(self, queue_node: QueueNode) -> QueueNode | None:
        """The one above it, None if that is the root; says why it is that though another is named."""
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

    # -- who is where

    def find(self, name: str, namespace: str) -> QueueNode | None:
        """The queue that is meant by a name in a namespace: one of that name, else the namespace's ElasticQuota."""
        return self.nodes.get(name) or self.nodes.get(f"{namespace}/{name}")

    def settle(self, local_queue: LocalQueue) -> None:
        """Find the queue of an account: that which is named, else that of its namespace, else `default`.

        The first of these is where its pods want to be, the first that admits their namespace where they are. One that
        is named and does not exist is missed where there are queues that can be named.
        """
        found = self.find(local_queue.named, local_queue.namespace) if local_queue.named else None
        local_queue.missing = found is None and bool(local_queue.named) and self._nameable
        default = self.nodes[DEFAULT]
        wanted = [each for each in (found, self._of_namespace.get(local_queue.namespace), default) if each is not None]
        admitting = (each for each in wanted if self.admits(each, local_queue.namespace))
        at = next(admitting, None)
        local_queue.at, local_queue.refused = at or default, "" if at is wanted[0] else wanted[0].name
        if local_queue.refused:
            wanted[0].strangers.append(local_queue)

    def admits(self, queue_node: QueueNode, namespace: str) -> bool:
        """Whether pods of this namespace may use the queue; an ElasticQuota is for those of its own."""
        own = own_namespace(queue_node)
        if own:
            return own == namespace
        return selects(queue_node.queue.namespace_selector, self._namespaces.get(namespace))

    def refill(self, local_queue: LocalQueue) -> None:
        """Add all pods of an account to the queues that it is in."""
        allocated, requested = tuple(local_queue.allocated.items()), tuple(local_queue.requested.items())
        add(local_queue.at.own, requested)
        for queue_node in local_queue.at.upwards:
            queue_node.ask(requested, 1)
            queue_node.place(allocated, 1)
            queue_node.count(local_queue.running, local_queue.waiting)

    def distinguishes(self, labels: Mapping[str, str] | None, others: Mapping[str, str] | None) -> bool:
        """Whether any queue admits namespaces with these labels and not with the others, or the other way round."""
        selectors = [queue_node.queue.namespace_selector for queue_node in self.nodes.values()]
        return any(selects(each, labels) != selects(each, others) for each in selectors)

    def divided(self) -> None:
        """Find out which resources are divided."""
        queues = [queue_node.queue for queue_node in self.nodes.values()]
        named = {GPUS}.union(*((*queue.guarantee, *queue.deserved) for queue in queues))
        fair = sorted(named, key=lambda resource: (resource != GPUS, resource))
        self.fair = frozenset(fair[: QUEUE_DIVIDED.most])

    # -- what is due

    def divide(self, there: Mapping[str, int]) -> list[str]:
        """Divide what there is among those who ask; returns the queues (names) to which something else is due now."""
        due: dict[str, dict[str, float]] = {name: {} for name in self.nodes}
        for queue_node in self._downwards:
            queue_node.contested, queue_node.own_due = frozenset(), {}
        for resource in sorted(self.fair):
            self._divide_one(resource, there.get(resource, 0), due)
        changed = [name for name, queue_node in self.nodes.items() if queue_node.due != due[name]]
        for name in changed:
            queue_node = self.nodes[name]
            queue_node.due, queue_node.known_part = due[name], None
        return changed

    def _divide_one(self, resource: str, amount: float, due: Mapping[str, dict[str, float]]) -> None:
        """Divide what is due to each queue among those below it; its own pods count as one of weight 1."""
        asked: dict[str, float] = {}
        for queue_node in reversed(self._downwards):
            in_all = queue_node.own.get(resource, 0) + sum(asked[below.name] for below in queue_node.below)
            asked[queue_node.name] = min(in_all, queue_node.queue.capability.get(resource, in_all))
        for above in self._downwards:
            if above.below:
                claims = [_claim(queue_node.queue, resource, asked[queue_node.name]) for queue_node in above.below]
                there = amount if above is self.root else due[above.name][resource]
                claims.append(QueueDemand(above.own.get(resource, 0)))
                parts = shares.divide(there, claims)
                for queue_node, part in zip(above.below, parts, strict=False):
                    due[queue_node.name][resource] = part
                above.own_due[resource] = parts[-1]
                if sum(parts) < sum(claim.asked for claim in claims) - SAME:
                    above.contested |= {resource}


def _claim(queue: Queue, resource: str, asked: float) -> QueueDemand:
    guarantee, deserved = queue.guarantee.get(resource, 0), queue.deserved.get(resource, 0)
    return QueueDemand(asked, queue.weight, queue.priority, guarantee, deserved)


def selects(selector: Selector | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a namespace with these labels is selected; None: nobody knows them."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return True
    return labels is not None and selector.selects(labels)


def own_namespace(queue_node: QueueNode) -> str:
    """Of an ElasticQuota, "" of other queues."""
    return queue_node.name.rpartition("/")[0]
