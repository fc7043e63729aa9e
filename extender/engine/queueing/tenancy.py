"""Tenants and their queues: which pod counts in which queue and for how much, and what is told of each queue.

Pods of our schedulers count, and whoever else asks for GPUs. A member of a gang is in the gang's queue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from extender.engine.queueing.admission import Admission
from extender.engine.queueing.order import PendingOrder
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.queueing.queues import Queues
from extender.engine.queueing.supply import Supply
from extender.engine.queueing.usage import UsageCalculator
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_info import PodInfo
from extender.engine.state.pod_state import PodState
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.roster import GangInfo
from extender.engine.types import refusals
from extender.engine.types.effects import QueueStatus, Requeue
from extender.engine.types.settings import Settings
from extender.engine.types.sliced import Sliced
from extender.engine.types.subject import Subject
from protos.contract.gpu_class import GpuClass
from protos.contract.queue import API_VERSION, CLASS, GPUS, Queue, shown, worded
from protos.contract.reason import Reason

MOST_TOLD, MOST_LOOKED_AT = 20, 50
"""Queues told of, and looked at for that, at once; the others come with the next look."""
MOST_NODES = 200
"""Nodes whose supply is reckoned anew with one tick."""

LOOKED_AT, COUNTED = 16, 10
"""Pods looked at for one `attempt.LOOK` when kinds of GPUs change, and what it costs to count one anew."""

PLACED: Final = ("binding", "bound")


class Tenancy:
    """All queues, kept in step with the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        classes: Mapping[str, GpuClass],
        quarantine: Quarantine,
        order: PendingOrder,
        moved: Callable[[str], None],
    ) -> None:
        """`moved` is told of each pod (its UID) that comes to another queue."""
        self._quarantine = quarantine
        self._ledger, self._settings, self._classes = ledger, settings, classes
        self.queues = Queues(moved)
        self.admission = Admission(self.queues, order)
        self._tariff, self._supply = UsageCalculator(ledger), Supply(ledger)
        self._stale: dict[str, None] = {}
        """Nodes on which something else is held."""
        self._told: dict[str, QueueStatus] = {}
        self._leading, self._fixed = True, False
        self._repricing: Sliced[None] | None = None

    # -- the world

    def node(self, name: str) -> None:
        """The node is there, changed or is gone."""
        node = self._ledger.nodes.get(name)
        books = node.books if node is not None and node.seen else None
        self._tariff.node(name, books.inventory if books is not None else None, self._settings.resources.whole)
        self.queues.node(name, self._supply.of_node(name))

    def stale(self, name: str) -> None:
        """Something else is held on a node: what that has is reckoned anew with the next tick, if it matters."""
        if self._supply.partial(name):
            self._stale[name] = None

    def put(self, queue: Queue) -> None:
        """A queue is there, or another one now. Of an ElasticQuota counts what the settings let count."""
        if queue.namespaced and self._settings.elastic_quotas != "guaranteed":
            deserved = queue.deserved if self._settings.elastic_quotas == "deserved" else {}
            queue = msgspec.structs.replace(queue, guarantee={}, deserved=deserved)
        self.queues.put(queue)

    def drop(self, source: str, name: str) -> None:
        """A queue is gone; of another of its name all is to be told."""
        self.queues.drop(source, name)
        self._told.pop(name, None)

    def see(self, pod: PodState, said: PodInfo, known: GangInfo | None) -> None:
        """Take in what a pod says that is not over, and that is in this gang."""
        if not said.ours and pod.ask is None:
            pod.queue = None
            self.forget(pod.ref.uid)
            return
        if not self.stays(pod.ref.uid):
            pod.queue, pod.gpu_class = known.gang.terms.queue if known is not None else said.queue, said.gpu_class
        self.moved(pod)

    def stays(self, uid: str) -> bool:
        """Whether the pod has a node and counts already: whatever it says now, it stays in its queue while we lead."""
        pod = self._ledger.pods.get(uid)
        return self._fixed and pod is not None and pod.queue is not None and pod.state in PLACED

    def pending(self, pod: PodState) -> bool:
        """Whether the pod has no node and counts in a queue: the queue, metrics and commands count the same pods."""
        return pod.state == "waiting" and pod.queue is not None

    def moved(self, pod: PodState) -> None:
        """The pod is on another node now, or on none, or on other GPUs."""
        if pod.queue is not None:
            takes, placed = self._tariff.of(pod, pod.gpu_class), pod.state != "waiting"
            self.queues.see(pod.ref.uid, pod.queue, pod.ref.namespace, takes, placed=placed)
            if pod.state in PLACED:
                self.admission.forget(pod.ref.uid)

    def forget(self, uid: str) -> None:
        """The pod is over, or does not count; one that names a queue counts again once it is `moved`."""
        self.queues.forget(uid)
        self.admission.forget(uid)

    def join(self, uid: str, known: GangInfo | None) -> None:
        """The pod is in this gang, and so in its queue."""
        if known is not None:
            self._count(uid, known.gang.terms.queue)
            self.renamed(known)

    def renamed(self, known: GangInfo | None) -> None:
        """The gang may be in another queue now."""
        if known is not None and known.counted_in != known.gang.terms.queue:
            known.counted_in = known.gang.terms.queue
            for uid in known.gang.members:
                if not self.stays(uid):
                    self._count(uid, known.counted_in)

    def _count(self, uid: str, queue: str) -> None:
        """The pod counts in the queue of this name."""
        pod = self._ledger.pods.get(uid)
        if pod is not None and pod.queue not in (None, queue):
            pod.queue = queue
            self.moved(pod)

    def recount(self) -> None:
        """Count all pods anew, as the books have them, after an error of ours."""
        for uid in self.queues.recount(self._ledger.pods):
            self.admission.forget(uid)
        self._quarantine.each(list(self._ledger.pods.values()), lambda pod: pod.subject, "queues", self.moved)

    # -- pods that go singly

    def refused(self, pod: PodState) -> Reason | None:
        """Why the pod's queue has no room for it, None if it has; one without room is woken when there is."""
        why = self.admission.single(pod)
        if why is not None:
            self.admission.block(pod)
            return why
        self.admission.forget(pod.ref.uid)
        if refusals.for_queue(pod.refusal):
            pod.refusal = None
        return None

    def admits(self, pod: PodState) -> bool:
        """Whether the pod's queue has room for a pod that waits for GPUs; if not, that is why it waits from now on."""
        why = self.refused(pod)
        pod.refusal = why or pod.refusal
        return why is None

    def due(self, now: float) -> list[Requeue]:
        """The pods whose queue has room again."""
        return self.admission.due(now)

    # -- time

    def tick(self) -> None:
        """What pods would take, and what is due to each queue, is reckoned anew where something changed."""
        if self._repricing is None and self._tariff.outdated():
            self._repricing = Sliced(self._reprice())
        self.work()
        for name in list(islice(self._stale, MOST_NODES)):
            del self._stale[name]
            self.queues.node(name, self._supply.of_node(name))
        self.queues.reckon(self._of_classes())

    def work(self) -> bool:
        """Do a slice of the recount after a change of the kinds of GPUs; returns whether there is more to do."""
        repricing, self._repricing = self._repricing, None
        if repricing is not None and not repricing.advance():
            self._repricing = repricing
        return self._repricing is not None

    def _reprice(self) -> Generator[int, None, None]:
        """Count pending pods anew if the kinds of GPUs that there are change what they would take."""
        if not (yield from self._tariff.changed()):
            return
        pods = self._ledger.pods
        every = iter(list(pods.values()))
        while some := list(islice(every, LOOKED_AT)):
            pending = [pod for pod in some if pod.ask is not None and pod.state == "waiting"]
            alive = [pod for pod in pending if pods.get(pod.ref.uid) is pod]
            self._quarantine.each(alive, lambda pod: pod.subject, "queues", self.moved)
            yield 1 + COUNTED * len(alive)

    def _of_classes(self) -> dict[str, int]:
        """How many GPUs there are of the classes that are divided among queues."""
        wanted = (resource for resource in self.queues.fair if resource.startswith(CLASS))
        known = ((resource, self._classes.get(resource.removeprefix(CLASS))) for resource in wanted)
        return {
            resource: self._supply.of_class(found.selection) if found and not found.problem else 0
            for resource, found in known
        }

    # -- what is told

    def lead(self, yes: bool) -> None:
        """Whether this process may write. Another may have written something else: all is told once more then."""
        self._leading = self._fixed = yes
        self._told.clear()
        self.queues.touched.update(dict.fromkeys(self.queues.queue_nodes))

    def news(self) -> Iterator[QueueStatus]:
        """How those queues stand of which something else was told before: a few at a time."""
        if not self._leading:
            return
        told = 0
        for name in list(islice(self.queues.touched, MOST_LOOKED_AT)):
            del self.queues.touched[name]
            queue_node = self.queues.queue_nodes.get(name)
            status = None
            with self._quarantine.over(Subject("queue", name, API_VERSION), "status of queues"):
                status = self.status(queue_node) if queue_node and queue_node.queue.source == API_VERSION else None
            if status is None:
                self._told.pop(name, None)
            elif self._told.get(name) != status:
                self._told[name] = status
                told += 1
                yield status
            if told == MOST_TOLD:
                return

    def status(self, queue_node: QueueNode) -> QueueStatus:
        """How a queue stands now."""
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
            closed=queue.closed,
            problem=queue.problem,
            misplaced=queue_node.misplaced,
            exceeded=_exceeded(queue_node),
        )


def _exceeded(queue_node: QueueNode) -> str:
    """What it has beyond its capability, in words, "" if nothing."""
    found = [f"{worded(r, had)} are in use, it may have {worded(r, most)}" for r, had, most in queue_node.exceeded]
    return f"{'; '.join(found)}: nothing new starts in it until it is within that" if found else ""
