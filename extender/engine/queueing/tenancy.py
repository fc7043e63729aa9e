"""Which pod counts in which queue and for how much, and the status of each queue.

Pods of our schedulers count, and all other pods that request GPUs. A member of a gang is in the gang's queue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from itertools import islice
from typing import Final

import msgspec

from extender.engine.queueing.admission import Admission
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.usage import Supply, UsageCalculator
from extender.engine.state.context import EngineContext
from extender.engine.state.pod_info import PodInfo
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import QueueStatus
from extender.engine.types.sliced import Sliced
from extender.engine.types.subject import Subject
from protos.contract.gpu_class import GpuClass
from protos.contract.queue import API_VERSION, CLASS, GPUS, Queue, shown, worded
from protos.contract.reason import Reason

MOST_REPORTED, MOST_COMPARED = 20, 50
"""Status updates written, and queues compared for them, at once."""
MOST_NODES = 200
"""Nodes whose capacity is computed again in one tick."""
LOOKED_AT, COUNTED = 16, 10
"""Pods checked for one `attempt.LOOK` when the kinds of GPUs change, and the cost of counting one again."""
PLACED: Final = ("binding", "bound")


class Tenancy:
    """Keeps the queues in step with the ledger, and knows which status of each was last reported."""

    def __init__(
        self,
        context: EngineContext,
        classes: Mapping[str, GpuClass],
        order: PendingOrder,
        moved: Callable[[str], None],
    ) -> None:
        """`moved` is called with the UID of each pod that comes to another queue."""
        self._ledger, self._settings, self._classes = context.ledger, context.settings, classes
        self._quarantine, self._outbox, self._cannot_fit = context.quarantine, context.outbox, context.cannot_fit
        self.queues = Queues(moved)
        self.admission = Admission(self.queues, order)
        self._usage, self._supply = UsageCalculator(context.ledger), Supply(context.ledger)
        self._stale: dict[str, None] = {}
        """Nodes of partial capacity on which bookings changed."""
        self._reported: dict[str, QueueStatus] = {}
        self._leading, self._fixed = True, False
        self._repricing: Sliced[None] | None = None

    # -- events

    def node(self, name: str) -> None:
        """The node was added, changed or removed."""
        node = self._ledger.nodes.get(name)
        books = node.books if node is not None and node.seen else None
        self._usage.node(name, books.inventory if books is not None else None, self._settings.resources.whole)
        self.queues.node(name, self._supply.of_node(name))

    def stale(self, name: str) -> None:
        """Bookings on the node changed: if its capacity depends on them, the next tick computes it again."""
        if self._supply.partial(name):
            self._stale[name] = None

    def put(self, queue: Queue) -> None:
        """Add or replace a queue. The settings say which fields of an ElasticQuota count."""
        if queue.namespaced and self._settings.elastic_quotas != "guaranteed":
            deserved = queue.deserved if self._settings.elastic_quotas == "deserved" else {}
            queue = msgspec.structs.replace(queue, guarantee={}, deserved=deserved)
        self.queues.put(queue)

    def drop(self, source: str, name: str) -> None:
        """Remove a queue; the status of another one of its name is reported in full."""
        self.queues.drop(source, name)
        self._reported.pop(name, None)

    def see(self, pod: PodState, info: PodInfo, known: GangInfo | None) -> None:
        """Take in a pod that has not ended, and its gang."""
        if not info.ours and pod.ask is None:
            pod.queue = None
            self.forget(pod.ref.uid)
            return
        if not self.stays(pod.ref.uid):
            pod.queue, pod.gpu_class = known.gang.terms.queue if known is not None else info.queue, info.gpu_class
            self.moved(pod)

    def stays(self, uid: str) -> bool:
        """Whether the pod has a node and counts: then it stays in its queue while this process leads."""
        pod = self._ledger.pods.get(uid)
        return self._fixed and pod is not None and pod.queue is not None and pod.state in PLACED

    def pending(self, pod: PodState) -> bool:
        """Whether the pod has no node and counts in a queue; the status, metrics and commands count these pods."""
        return pod.state == "waiting" and pod.queue is not None

    def moved(self, pod: PodState) -> None:
        """Count the pod again: its queue, node or GPUs changed."""
        if pod.queue is not None:
            takes, placed = self._usage.of(pod, pod.gpu_class), pod.state != "waiting"
            asks = placed or self._cannot_fit.of(pod) is None
            self.queues.see(pod.ref.uid, pod.queue, pod.ref.namespace, takes, placed=placed, asks=asks)
            if pod.state in PLACED:
                self.admission.forget(pod.ref.uid)

    def forget(self, uid: str) -> None:
        """Stop counting the pod; one that names a queue counts again once it is `moved`."""
        self.queues.forget(uid)
        self.admission.forget(uid)

    def join(self, uid: str, known: GangInfo | None) -> None:
        """The pod joined this gang, and so its queue."""
        if known is not None:
            self._count(uid, known.gang.terms.queue)
            self.renamed(known)

    def renamed(self, known: GangInfo | None) -> None:
        """The gang may name another queue."""
        if known is not None and known.counted_in != known.gang.terms.queue:
            known.counted_in = known.gang.terms.queue
            for uid in known.gang.members:
                if not self.stays(uid):
                    self._count(uid, known.counted_in)

    def _count(self, uid: str, queue: str) -> None:
        pod = self._ledger.pods.get(uid)
        if pod is not None and pod.queue not in (None, queue):
            pod.queue = queue
            self.moved(pod)

    def recount(self) -> None:
        """Count all pods of the books again, after an internal error."""
        for uid in self.queues.recount(self._ledger.pods):
            self.admission.forget(uid)
        self._quarantine.each(list(self._ledger.pods.values()), lambda pod: pod.subject, "queues", self.moved)

    # -- single pods

    def refused(self, pod: PodState) -> Reason | None:
        """Why the pod's queue has no quota for it, None if it has; without quota it is requeued when there is some."""
        uid, quota = pod.ref.uid, self.admission.quota
        local_queue = self.queues.of(uid)
        if local_queue is not None:
            own = quota.own(local_queue, (uid,)) if pod.state == "waiting" else quota.used_by(local_queue, uid)
            why = quota.shortage(local_queue, self.queues.takes(uid), own)
            if why is not None:
                self.admission.block(pod)
                return why
        self.admission.forget(uid)
        if refusals.for_queue(pod.refusal):
            pod.refusal = None
        return None

    def admits(self, pod: PodState) -> bool:
        """Whether the pod's queue has quota for it; if not, that is its refusal from now on."""
        why = self.refused(pod)
        pod.refusal = why or pod.refusal
        return why is None

    def requeue(self, now: float) -> None:
        """Requeue pods whose queues have quota for them by now."""
        self._outbox.put(*self.admission.due(now))

    # -- time

    def tick(self) -> None:
        """Compute the use of pending pods, the capacity of nodes and the fair shares again where they changed."""
        if self._repricing is None and self._usage.outdated() | self._cannot_fit.outdated():
            self._repricing = Sliced(self._reprice())
        self.work()
        for name in list(islice(self._stale, MOST_NODES)):
            del self._stale[name]
            self.queues.node(name, self._supply.of_node(name))
        self.queues.reckon(self._of_classes())

    def work(self) -> bool:
        """Run a slice of the recount after a change of the kinds of nodes; returns whether there is more to do."""
        if self._repricing is not None and self._repricing.advance():
            self._repricing = None
        return self._repricing is not None

    def _reprice(self) -> Generator[int, None, None]:
        """Count pending pods again: the kinds of nodes may have changed what they would use, and whether they fit."""
        pods = self._ledger.pods
        every = iter(list(pods.values()))
        while some := list(islice(every, LOOKED_AT)):
            pending = [pod for pod in some if pod.ask is not None and pod.state == "waiting"]
            alive = [pod for pod in pending if pods.get(pod.ref.uid) is pod]
            self._quarantine.each(alive, lambda pod: pod.subject, "queues", self.moved)
            yield 1 + COUNTED * len(alive)

    def _of_classes(self) -> dict[str, int]:
        """The capacity in GPUs of the classes that are divided among queues."""
        wanted = (resource for resource in self.queues.fair if resource.startswith(CLASS))
        classes = ((resource, self._classes.get(resource.removeprefix(CLASS))) for resource in wanted)
        return {
            resource: self._supply.of_class(gpu_class.selection) if gpu_class and not gpu_class.problem else 0
            for resource, gpu_class in classes
        }

    # -- status

    def lead(self, yes: bool) -> None:
        """Set whether this process may write. Another one may have written since: every status is reported again."""
        self._leading = self._fixed = yes
        self._reported.clear()
        self.queues.touched.update(dict.fromkeys(self.queues.queue_nodes))

    def report(self) -> None:
        """Write the changed statuses of queues, a few at a time."""
        if not self._leading:
            return
        reported = 0
        for name in list(islice(self.queues.touched, MOST_COMPARED)):
            del self.queues.touched[name]
            queue_node = self.queues.queue_nodes.get(name)
            status = None
            with self._quarantine.over(Subject("queue", name, API_VERSION), "status of queues"):
                status = self.status(queue_node) if queue_node and queue_node.queue.source == API_VERSION else None
            if status is None:
                self._reported.pop(name, None)
            elif self._reported.get(name) != status:
                self._reported[name] = status
                reported += 1
                self._outbox.put(status)
            if reported == MOST_REPORTED:
                return

    def status(self, queue_node: QueueNode) -> QueueStatus:
        queue = queue_node.queue
        limits = {*queue.guarantee, *queue.deserved, *queue.capability, GPUS}
        has = {resource for resource, amount in queue_node.requested.items() if amount and resource != "pods"}
        resources = sorted(limits | has)
        return QueueStatus(
            name=queue_node.name,
            allocated={r: shown(r, queue_node.allocated.get(r, 0)) for r in resources},
            requested={r: shown(r, queue_node.requested.get(r, 0)) for r in resources},
            fair_share={r: shown(r, due) for r, due in sorted(queue_node.due.items())},
            share=f"{queue_node.part:.2f}",
            waiting=queue_node.waiting,
            running=queue_node.running,
            closed=queue_node.shut is not None,
            problem=queue.problem,
            misplaced=queue_node.misplaced,
            exceeded=_exceeded(queue_node),
        )


def _exceeded(queue_node: QueueNode) -> str:
    """What the queue uses beyond its capability, in words, "" if nothing."""
    excess = [f"{worded(r, had)} are in use, it may have {worded(r, most)}" for r, had, most in queue_node.exceeded]
    return f"{'; '.join(excess)}: nothing new starts in it until it is within that" if excess else ""
