"""Why a pod waits for its queue."""

from __future__ import annotations

from typing import Any

from extender.engine.types.events import NamespaceSeen, PodSeen, QueueSeen
from protos.contract import names
from protos.contract.namespace import Namespace
from protos.contract.queue import GPU, GPUS, Queue
from protos.contract.reason import Reason
from protos.contract.selector import Selector
from tests.builders import a_pod
from tests.unit.refusals.case import Case, after


def _queued(*queues: Queue) -> Reason:
    """Why a pod that names the queue `research` waits, beside these queues."""
    pod = a_pod(mem=4, annotations={names.QUEUE: "research"})
    return after(NamespaceSeen(Namespace("default", {})), *map(QueueSeen, queues), PodSeen(pod), pod=pod)


def _queue(**fields: Any) -> Queue:
    return Queue(name="research", **fields)


QUEUES = [
    Case(
        "QueueFull",
        "queue <queue> has no quota left for this request",
        lambda: _queued(_queue(capability={GPUS: 0})),
    ),
    Case(
        "QueueReserved",
        "the free capacity is guaranteed to other queues",
        lambda: _queued(_queue(), Queue(name="other", guarantee={GPUS: GPU})),
    ),
    Case(
        "QueueClosed",
        "queue <queue> is closed; its workloads wait until it is open",
        lambda: _queued(_queue(closed=True)),
    ),
    Case(
        "QueueForbidden",
        "queue <queue> does not admit pods of this namespace; workloads that name it wait until it does",
        lambda: _queued(_queue(namespace_selector=Selector({"team": "a"}))),
    ),
    Case(
        "QueueMissing",
        "queue <queue> does not exist; workloads that name it wait for it",
        lambda: _queued(Queue(name="other")),
    ),
    Case(
        "QueueUnreadable",
        "queue <queue> cannot be read; its workloads wait until it is corrected",
        lambda: _queued(_queue(problem="spec cannot be read")),
    ),
]
