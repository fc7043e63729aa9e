"""The queues of the aggregated API, and the order of their pending workloads."""

from __future__ import annotations

import bisect
from collections.abc import Generator, Iterator

import msgspec
from msgspec.structs import asdict, replace

from extender.engine.cycle.engine import Engine
from extender.engine.queueing.line import Turn
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.server import listings, places, verdicts
from extender.server.desk import Refusal, current
from extender.server.visibility.items import Listing, View, hidden_start, shown, whole_page
from extender.wire import visibility as wire
from extender.wire.visibility import Item

LINE_SLICE = 50
"""Pending workloads looked at between two pauses."""
MOST_PENDING = 1000
"""Pending workloads of a queue that are shown by name."""


def queues(view: View, namespace: str) -> Listing:  # noqa: ARG001
    """All queues, each after its parent, without the order of their pending workloads."""
    for queue in listings.tree(view.engine):
        yield Item("", queue.name, wire.GpuQueueStatus(**asdict(queue), verdict=verdicts.of_queue(queue)))


def queue(view: View, namespace: str, name: str) -> Listing:  # noqa: ARG001
    """A queue by name, with its pending workloads in order."""
    try:
        text = yield from whole_page(places.queue(view.engine, name, view.now))
    except Refusal:
        return  # there is none
    page = msgspec.json.decode(text, type=wire.GpuQueueStatus)
    line, further = yield from _line(view, name)
    seen = tuple(each for each in line if each.namespace in view.sight)
    fields = {
        "line": tuple(replace(each, who=shown(view, each.who)) for each in page.line),
        "first": hidden_start(view, page.first),
        "pending": seen,
        "other_pending": len(line) - len(seen) + further,
    }
    yield Item("", name, replace(page, **fields))


def _line(view: View, queue: str) -> Generator[None, None, tuple[list[wire.PendingWorkload], int]]:
    """The first pending workloads of a queue, in order, and the number of the further ones."""
    heads, queues = view.engine.backfill.heads, view.engine.tenancy.queues
    line: list[tuple[Turn, str, str, str]] = []
    further = 0
    for number, (kind, namespace, name, workload) in enumerate(_workloads(view.engine)):
        place = heads.waiting(workload)
        if place is not None and place.local_queue is not None and queues.at(place.local_queue).name == queue:
            bisect.insort(line, (place.turn, kind, namespace, name))
            further += len(line) > MOST_PENDING
            del line[MOST_PENDING:]
        if number % LINE_SLICE == 0:
            yield
    shown = [
        wire.PendingWorkload(place=number, kind=kind, namespace=namespace, name=name)
        for number, (_, kind, namespace, name) in enumerate(line, 1)
    ]
    return shown, further


def _workloads(engine: Engine) -> Iterator[tuple[str, str, str, GangInfo | PodState]]:
    for info in current(engine.gangs.roster.known):
        yield "Gang", info.gang.key.namespace, info.gang.key.name, info
    for pod in current(engine.pods):
        yield "Pod", pod.ref.namespace, pod.ref.name, pod
