"""What the books hold, as Prometheus reads it, in pieces of which none takes long to make.

At 5,000 nodes these are more than 100,000 lines: made in one go they would hold up kube-scheduler for half a second.
Source: Prometheus text exposition format 0.0.4.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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
from extender.server.desk import Pieces
from gangfilter.table import Phase
from protos.contract.gpu_book import GpuBook
from protos.contract.printable import printable
from protos.contract.queue import GPU, GPUS

Samples = Callable[[QueueNode], list[str]]
"""The lines of one queue."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE = 200
"""Pods or gangs counted between two pieces."""

_SPECIAL = re.compile(r'[\\"\n]')
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_GPUS: tuple[tuple[Spec, Callable[[GpuBook], int]], ...] = (
    (metrics.MEM, lambda book: book.gpu.mem),
    (metrics.MEM_FREE, lambda book: 0 if book.wholes else book.mem_free),
    (metrics.SLICES_FREE, lambda book: 0 if book.wholes else book.slices_free),
    (metrics.OFFERED, lambda book: int(book.offered)),
)


def _gpus_of(spec: Spec, had: Callable[[QueueNode], Mapping[str, float]]) -> tuple[Spec, Samples]:
    return spec, lambda queue_node: [_line(spec, (queue_node.name,), had(queue_node).get(GPUS, 0) / GPU)]


def _pods_of(queue_node: QueueNode) -> list[str]:
    counts = (("waiting", queue_node.waiting), ("running", queue_node.running))
    return [_line(metrics.QUEUE_PODS, (queue_node.name, state), count) for state, count in counts]


_QUEUES: tuple[tuple[Spec, Samples], ...] = (
    _gpus_of(metrics.QUEUE_FAIR_SHARE, lambda queue_node: queue_node.due),
    _gpus_of(metrics.QUEUE_ALLOCATED, lambda queue_node: queue_node.allocated),
    _gpus_of(metrics.QUEUE_REQUESTED, lambda queue_node: queue_node.requested),
    (metrics.QUEUE_SHARE, lambda queue_node: [_line(metrics.QUEUE_SHARE, (queue_node.name,), queue_node.part)]),
    (
        metrics.QUEUE_OVER,
        lambda queue_node: [_line(metrics.QUEUE_OVER, (queue_node.name,), int(any(queue_node.exceeded)))],
    ),
    (metrics.QUEUE_PODS, _pods_of),
)


class _Family(CollectorRegistry):
    """A registry of one metric: all of them told at once would take long."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def pieces(engine: Engine, registry: CollectorRegistry, *, tenants: bool) -> Pieces:
    """The whole answer to a scrape; without `tenants`, without what shows their pods."""
    for metric in registry.collect():
        yield generate_latest(_Family(metric))
    for piece in _pieces(engine, tenants):
        yield piece.encode()


def _pieces(engine: Engine, tenants: bool) -> Iterator[str]:
    yield from _states(engine)
    for queue_spec, samples in _QUEUES:
        yield _head(queue_spec)
        for queue_node in list(engine.tenancy.queues.queue_nodes.values()):
            yield "".join(samples(queue_node))
    for spec, value in _GPUS:
        yield _head(spec)
        for name in list(engine.nodes):
            node = engine.nodes.get(name)
            yield "".join(_gpus(spec, node, value)) if node is not None else ""
    if tenants:
        yield _head(metrics.INFO)
        for uid in list(engine.pods):
            pod = engine.pods.get(uid)
            yield "".join(_allocations(pod)) if pod is not None else ""


def _states(engine: Engine) -> Iterator[str]:
    states: Counter[str] = Counter()
    for number, uid in enumerate(list(engine.pods)):
        pod = engine.pods.get(uid)
        states[pod.state if pod is not None and pod.ask is not None else ""] += 1
        if number % SLICE == 0:
            yield ""
    states["kept"] = sum(slot.ask is not None for slot in engine.ledger.keepers.values())
    held = (_line(metrics.BOOKINGS, (state,), states[state]) for state in ("held", "binding", "bound", "kept"))
    yield _head(metrics.BOOKINGS) + "".join(held)
    yield _head(metrics.PENDING) + _line(metrics.PENDING, (), engine.tenancy.queues.root.waiting)
    aside = Counter(subject.kind for subject, _ in engine.quarantine.all())
    kinds = (_line(metrics.QUARANTINED, (kind,), aside[kind]) for kind in get_args(SubjectKind))
    yield _head(metrics.QUARANTINED) + "".join(kinds)
    phases: Counter[Phase] = Counter()
    for number, key in enumerate(list(engine.gangs.roster.known)):
        known = engine.gangs.roster.known.get(key)
        if known is not None:
            phases[known.gang.phase] += 1
        if number % SLICE == 0:
            yield ""
    yield _head(metrics.GANGS) + "".join(_line(metrics.GANGS, (phase,), phases[phase]) for phase in Phase)


def _gpus(spec: Spec, node: NodeState, value: Callable[[GpuBook], int]) -> Iterator[str]:
    for uuid, book in node.books.gpus.items() if node.books else ():
        yield _line(spec, (node.name, uuid, str(book.gpu.index)), value(book))


def _allocations(pod: PodState) -> Iterator[str]:
    if pod.allocation is None or pod.state not in ("binding", "bound"):
        return
    for container, shares in pod.allocation.containers.items():
        for share in shares:
            labels = (pod.ref.namespace, pod.ref.name, container, share.uuid, pod.node, str(share.index))
            yield _line(metrics.INFO, labels, 1)


def _head(spec: Spec) -> str:
    return f"# HELP {spec.name} {spec.help}\n# TYPE {spec.name} {spec.kind}\n"


def _escaped(text: str) -> str:
    text = printable(text)
    return text.translate(_ESCAPES) if _SPECIAL.search(text) else text


def _line(spec: Spec, values: tuple[str, ...], value: float) -> str:
    told = value if isfinite(value) else "+Inf"
    labels = ",".join([f'{key}="{_escaped(text)}"' for key, text in zip(spec.labels, values, strict=True)])
    return f"{spec.name}{{{labels}}} {told}\n" if labels else f"{spec.name} {told}\n"
