"""What the engine holds, in Prometheus's text format.

At 5,000 nodes these are more than 100,000 lines: made in one go they would hold up kube-scheduler for half a second.
So the answer is made in small pieces. Source: Prometheus text exposition format 0.0.4.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from math import isfinite
from typing import get_args

from prometheus_client import CollectorRegistry, Metric, generate_latest

from extender import metrics
from extender.engine.cycle.engine import Engine
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.subject import SubjectKind
from extender.metrics import Spec
from extender.server.desk import SLICE, Pieces, current
from extender.server.inspect import exists
from gangfilter.table import Phase
from protos.contract import mig
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import IN_MIG_MODE
from protos.contract.printable import printable
from protos.contract.queue import GPU, GPUS
from protos.contract.selection import MIB

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SPECIAL = re.compile(r'[\\"\n]')
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_PER_GPU: tuple[tuple[Spec, Callable[[GpuBook, int], float]], ...] = (
    (metrics.MEM, lambda book, unit: book.gpu.mem * unit),
    (metrics.MEM_FREE, lambda book, unit: 0 if book.wholes else book.mem_free * unit),
    (metrics.SLICES_FREE, lambda book, _: 0 if book.wholes else book.slices_free),
    (metrics.ALLOCATED, lambda book, _: book.allocated),
    (metrics.OFFERED, lambda book, _: int(book.offered)),
)
"""`unit`: the bytes of a unit of memory."""
_PER_QUEUE: tuple[tuple[Spec, Callable[[QueueNode], float]], ...] = (
    (metrics.QUEUE_FAIR_SHARE, lambda queue: queue.due.get(GPUS, 0) / GPU),
    (metrics.QUEUE_ALLOCATED, lambda queue: queue.allocated.get(GPUS, 0) / GPU),
    (metrics.QUEUE_REQUESTED, lambda queue: queue.requested.get(GPUS, 0) / GPU),
    (metrics.QUEUE_SHARE, lambda queue: queue.part),
    (metrics.QUEUE_OVER, lambda queue: int(any(queue.exceeded))),
)


class _Family(CollectorRegistry):
    """A registry of one metric: formatting all at once would take long."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def pieces(engine: Engine, registry: CollectorRegistry, *, tenants: bool) -> Pieces:
    """The whole answer to a scrape; without `tenants` it names no pods."""
    for metric in registry.collect():
        yield generate_latest(_Family(metric))
    for piece in _pieces(engine, tenants):
        yield piece.encode()


def _pieces(engine: Engine, tenants: bool) -> Iterator[str]:
    yield from _counts(engine)
    queues = engine.tenancy.queues.queue_nodes
    for queue_spec, amount in _PER_QUEUE:
        yield _head(queue_spec)
        for queue in current(queues):
            yield _line(queue_spec, (queue.name,), amount(queue))
    yield _head(metrics.QUEUE_PODS)
    for queue in current(queues):
        waiting = _line(metrics.QUEUE_PODS, (queue.name, "waiting"), queue.waiting)
        yield waiting + _line(metrics.QUEUE_PODS, (queue.name, "running"), queue.running)
    for spec, value in _PER_GPU:
        yield _head(spec)
        for node in current(engine.nodes):
            yield "".join(_gpus(node, spec, value))
    yield _head(metrics.INSTANCE)
    for node in current(engine.nodes):
        books = node.books.gpus.values() if node.books else ()
        instances = (book.gpu for book in books if book.gpu.mig and exists(book))
        of_each = ((node.name, gpu.uuid, mig.shown(gpu.index), gpu.profile) for gpu in instances)
        yield "".join(_line(metrics.INSTANCE, labels, 1) for labels in of_each)
    yield _head(metrics.ISOLATION)
    for node in current(engine.nodes):
        isolation = node.books.inventory.isolation if node.books else None
        yield _line(metrics.ISOLATION, (node.name, *isolation.words), 1) if isolation else ""
    if tenants:
        yield _head(metrics.INFO)
        for pod in current(engine.pods):
            yield "".join(_allocations(pod))


def _counts(engine: Engine) -> Iterator[str]:
    states: Counter[str] = Counter()
    for number, pod in enumerate(current(engine.pods)):
        states[pod.state if pod.ask is not None else ""] += 1
        if number % SLICE == 0:
            yield ""
    states["kept"] = sum(slot.ask is not None for slot in engine.ledger.keepers.values())
    lines = (_line(metrics.BOOKINGS, (state,), states[state]) for state in ("held", "binding", "bound", "kept"))
    yield _head(metrics.BOOKINGS) + "".join(lines)
    yield _head(metrics.PENDING) + _line(metrics.PENDING, (), engine.tenancy.queues.root.waiting)
    quarantined = Counter(subject.kind for subject, _ in engine.quarantine.all())
    lines = (_line(metrics.QUARANTINED, (kind,), quarantined[kind]) for kind in get_args(SubjectKind))
    yield _head(metrics.QUARANTINED) + "".join(lines)
    phases: Counter[Phase] = Counter()
    for number, info in enumerate(current(engine.gangs.roster.known)):
        phases[info.gang.phase] += 1
        if number % SLICE == 0:
            yield ""
    yield _head(metrics.GANGS) + "".join(_line(metrics.GANGS, (phase,), phases[phase]) for phase in Phase)


def _gpus(node: NodeState, spec: Spec, value: Callable[[GpuBook, int], float]) -> Iterator[str]:
    if node.books is None:
        return
    unit = node.books.inventory.unit_mib * MIB
    for uuid, book in node.books.gpus.items():
        if (book.gpu.health == IN_MIG_MODE and spec is not metrics.OFFERED) or not exists(book):
            continue
        labels = (node.name, uuid, mig.shown(book.gpu.index))
        yield _line(spec, (*labels, book.gpu.model) if spec is metrics.OFFERED else labels, value(book, unit))


def _allocations(pod: PodState) -> Iterator[str]:
    if pod.allocation is None or pod.state not in ("binding", "bound"):
        return
    for container, shares in pod.allocation.containers.items():
        for share in shares:
            labels = (pod.ref.namespace, pod.ref.name, container, share.uuid, pod.node, mig.shown(share.index))
            yield _line(metrics.INFO, labels, 1)


def _head(spec: Spec) -> str:
    return f"# HELP {spec.name} {spec.help}\n# TYPE {spec.name} {spec.kind}\n"


def _escaped(text: str) -> str:
    text = printable(text)
    return text.translate(_ESCAPES) if _SPECIAL.search(text) else text


def _line(spec: Spec, values: tuple[str, ...], value: float) -> str:
    number = value if isfinite(value) else "+Inf"
    labels = ",".join([f'{key}="{_escaped(text)}"' for key, text in zip(spec.labels, values, strict=True)])
    return f"{spec.name}{{{labels}}} {number}\n" if labels else f"{spec.name} {number}\n"
