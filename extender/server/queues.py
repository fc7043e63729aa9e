"""Queues for people, as JSON."""

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.policies.backfill.reservation import BackfillReservation
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo
from extender.server.desk import Pieces
from extender.server.lists import joined
from extender.wire.answers import Earliest
from extender.wire.listings import Queue, Strangers
from gangfilter.table import Phase
from protos.contract.queue import shown
from protos.contract.reason import listed

NAMED = 5
"""Namespaces named; the rest is counted."""
SLICE = 100
"""Who waits, looked at between two pauses."""


def listing(engine: Engine) -> Pieces:
    """Every queue after the one above it, by name."""
    yield b'{"queues":['
    yield from joined(_below(engine, engine.tenancy.queues.root, 0))
    yield b"]}"


def _below(engine: Engine, above: QueueNode, depth: int) -> Iterator[Queue]:
    for queue_node in sorted(above.below, key=lambda each: each.name):
        yield _told(engine, queue_node, depth)
        yield from _below(engine, queue_node, depth + 1)


def _told(engine: Engine, queue_node: QueueNode, depth: int) -> Queue:
    queue = queue_node.queue
    return Queue(
        **msgspec.structs.asdict(engine.tenancy.status(queue_node)),
        source=queue.source,
        parent=queue.parent,
        weight=queue.weight,
        priority=queue.priority,
        reclaimable=queue.reclaimable,
        namespaces=queue.namespaces,
        guarantee=_quantities(queue.guarantee),
        deserved=_quantities(queue.deserved),
        capability=_quantities(queue.capability),
        namespace_selector=queue.namespace_selector,
        strangers=_strangers(queue_node),
        depth=depth,
    )


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {resource: shown(resource, amount) for resource, amount in sorted(amounts.items())}


def _strangers(queue_node: QueueNode) -> Strangers | None:
    """Pods that name the queue and whose namespaces it does not admit, None if there are none."""
    found = [local_queue for local_queue in queue_node.strangers if local_queue.waiting or local_queue.running]
    if not found:
        return None
    namespaces = sorted({local_queue.namespace for local_queue in found})
    waiting, running = sum(a.waiting for a in found), sum(a.running for a in found)
    return Strangers(waiting=waiting, running=running, namespaces=listed(namespaces, NAMED))


def of_group(engine: Engine, known: GangInfo) -> dict[str, Any]:
    """The queue of a gang; for one that waits for it also why, with the numbers of this moment."""
    local_queue = engine.tenancy.admission.local_queue(known.gang)
    told: dict[str, Any] = {"queue": engine.tenancy.queues.at(local_queue).name}
    if known.gang.phase is not Phase.WAITING:
        return told
    withheld = engine.gangs.planner.withheld(known.gang)
    if withheld is not None:
        told |= {"code": withheld.code, "sentence": withheld.sentence, "numbers": withheld.numbers}
    return told


def of_pod(engine: Engine, uid: str) -> str:
    """The queue that a pod is in, "" if none."""
    local_queue = engine.tenancy.queues.of(uid)
    return engine.tenancy.queues.at(local_queue).name if local_queue is not None else ""


def in_line(engine: Engine, of: GangInfo | PodState, now: float) -> Generator[bytes, None, dict[str, Any]]:
    """Which of those that wait in its queue this gang or single pod is, and when the first in line there starts.

    Nothing of one that does not wait, or waits in no queue.
    """
    heads = engine.backfill.heads
    mine = heads.waiting(of)
    queue = heads.queue(mine) if mine is not None else None
    if mine is None or queue is None:
        return {}
    before = waiting = 0
    for number, other in enumerate(heads.everybody()):
        if number % SLICE == SLICE - 1:
            yield b""
        if other is not None and heads.queue(other) is queue:
            before, waiting = before + (other.turn < mine.turn), waiting + 1
    return {"place": before + 1, "inLine": waiting, "first": start(engine, engine.backfill.first(queue), now)}


def start(engine: Engine, kept: BackfillReservation | None, now: float) -> Earliest | None:
    """When the one for whom this is kept starts at the earliest, in seconds from now, and where."""
    if kept is None:
        return None
    first = kept.first
    last = engine.pods.get(first.last)
    return Earliest(
        who=kept.head.who,
        seconds=round(max(0.0, first.start - now), 1),
        sure=first.sure,
        nodes=first.nodes,
        after=str(last.ref) if last is not None else "",
    )
