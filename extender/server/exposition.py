"""What the books hold, as Prometheus reads it, in pieces between which the event loop goes on.

At 5,000 nodes these are more than 100,000 lines: made in one go they would hold up kube-scheduler for half a second.
Source: Prometheus text exposition format 0.0.4.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from math import isfinite

from prometheus_client import CollectorRegistry, generate_latest

from extender import metrics
from extender.engine.books.ledger import NodeState, PodState
from extender.engine.engine import Engine
from extender.engine.queues.standing import Standing
from extender.metrics import Spec
from gangfilter.table import Phase
from protos.contract.books import GpuBook
from protos.contract.queue import GPU, GPUS

Samples = Callable[[Standing], list[str]]
"""The lines of one queue."""
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE = 32
"""Nodes, or some ten times as many pods, per piece."""

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_GPUS: tuple[tuple[Spec, Callable[[GpuBook], int]], ...] = (
    (metrics.MEM, lambda book: book.gpu.mem),
    (metrics.MEM_FREE, lambda book: 0 if book.wholes else book.mem_free),
    (metrics.SLICES_FREE, lambda book: 0 if book.wholes else book.slices_free),
    (metrics.OFFERED, lambda book: int(book.offered)),
)


def _gpus_of(spec: Spec, had: Callable[[Standing], Mapping[str, float]]) -> tuple[Spec, Samples]:
    return spec, lambda standing: [_line(spec, (standing.name,), had(standing).get(GPUS, 0) / GPU)]


def _pods_of(standing: Standing) -> list[str]:
    counts = (("waiting", standing.waiting), ("running", standing.running))
    return [_line(metrics.QUEUE_PODS, (standing.name, state), count) for state, count in counts]


_QUEUES: tuple[tuple[Spec, Samples], ...] = (
    _gpus_of(metrics.QUEUE_DESERVED, lambda standing: standing.due),
    _gpus_of(metrics.QUEUE_ALLOCATED, lambda standing: standing.allocated),
    _gpus_of(metrics.QUEUE_REQUESTED, lambda standing: standing.requested),
    (metrics.QUEUE_SHARE, lambda standing: [_line(metrics.QUEUE_SHARE, (standing.name,), standing.part)]),
    (metrics.QUEUE_PODS, _pods_of),
)


async def pieces(engine: Engine, registry: CollectorRegistry) -> AsyncIterator[bytes]:
    """The whole answer to a scrape."""
    yield generate_latest(registry)
    for piece in _pieces(engine):
        yield piece.encode()
        await asyncio.sleep(0)


def _pieces(engine: Engine) -> Iterator[str]:
    yield _states(engine)
    for queue_spec, samples in _QUEUES:
        yield _head(queue_spec)
        yield "".join(line for standing in engine.tenancy.queues.standings.values() for line in samples(standing))
    for spec, value in _GPUS:
        yield _head(spec)
        for names in _slices(engine.nodes, SLICE):
            found = [engine.nodes[name] for name in names if name in engine.nodes]
            yield "".join(line for node in found for line in _gpus(spec, node, value))
    yield _head(metrics.INFO)
    for uids in _slices(engine.pods, 10 * SLICE):
        pods = [engine.pods[uid] for uid in uids if uid in engine.pods]
        yield "".join(line for pod in pods for line in _allocations(pod))


def _states(engine: Engine) -> str:
    states: Counter[str] = Counter(pod.state for pod in engine.pods.values() if pod.ask is not None)
    states["kept"] = sum(slot.ask is not None for slot in engine.ledger.slots.values())
    held = "".join(_line(metrics.BOOKINGS, (state,), states[state]) for state in ("held", "binding", "bound", "kept"))
    phases = Counter(known.gang.phase for known in engine.gangs.known.values())
    gangs = "".join(_line(metrics.GANGS, (phase,), phases[phase]) for phase in Phase)
    waiting = _head(metrics.WAITING) + _line(metrics.WAITING, (), states["waiting"])
    return _head(metrics.BOOKINGS) + held + waiting + _head(metrics.GANGS) + gangs


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


def _slices(keys: Iterable[str], size: int) -> Iterator[list[str]]:
    all_keys = list(keys)
    return (all_keys[start : start + size] for start in range(0, len(all_keys), size))


def _head(spec: Spec) -> str:
    return f"# HELP {spec.name} {spec.help}\n# TYPE {spec.name} {spec.kind}\n"


def _line(spec: Spec, values: tuple[str, ...], value: float) -> str:
    told = value if isfinite(value) else "+Inf"
    labels = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in zip(spec.labels, values, strict=True))
    return f"{spec.name}{{{labels}}} {told}\n" if labels else f"{spec.name} {told}\n"
