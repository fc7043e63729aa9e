"""Queues for people, as JSON."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from extender.engine.backfill.shadow import Shadow
from extender.engine.books.ledger import PodState
from extender.engine.engine import Engine
from extender.engine.gangs.roster import Known
from extender.engine.queues.standing import Standing
from gangfilter.table import Phase
from protos.contract.queue import shown

SLICE = 100
"""Who waits, looked at between two turns of the event loop."""


def listing(engine: Engine) -> dict[str, Any]:
    """Every queue after the one above it, by name."""
    return {"queues": list(_below(engine, engine.tenancy.queues.root, 0))}


def _below(engine: Engine, above: Standing, depth: int) -> Iterator[dict[str, Any]]:
    for standing in sorted(above.below, key=lambda each: each.name):
        yield {**_told(engine, standing), "depth": depth}
        yield from _below(engine, standing, depth + 1)


def _told(engine: Engine, standing: Standing) -> dict[str, Any]:
    queue = standing.queue
    limits = {
        field: {resource: shown(resource, amount) for resource, amount in sorted(getattr(queue, field).items())}
        for field in ("guarantee", "capability")
    }
    status = msgspec.to_builtins(engine.tenancy.status(standing))
    own = {"source": queue.source, "parent": queue.parent, "weight": queue.weight, "priority": queue.priority}
    return {**status, **own, **limits, "reclaimable": queue.reclaimable, "namespaces": list(queue.namespaces)}


def of_group(engine: Engine, known: Known) -> dict[str, Any]:
    """The queue of a gang; for one that waits for it also why, with the numbers of this moment."""
    account = engine.tenancy.admission.account(known.gang)
    told: dict[str, Any] = {"queue": engine.tenancy.queues.at(account).name}
    if known.gang.phase is not Phase.WAITING:
        return told
    withheld = engine.gangs.starts.withheld(known.gang)
    if withheld is not None:
        told |= {"code": withheld.code, "sentence": withheld.sentence, "numbers": withheld.numbers}
    return told


def of_pod(engine: Engine, uid: str) -> str:
    """The queue that a pod is in, "" if none."""
    account = engine.tenancy.queues.of(uid)
    return engine.tenancy.queues.at(account).name if account is not None else ""


async def in_line(engine: Engine, of: Known | PodState, now: float) -> dict[str, Any]:
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
            await asyncio.sleep(0)
        if other is not None and heads.queue(other) is queue:
            before, waiting = before + (other.turn < mine.turn), waiting + 1
    return {"place": before + 1, "inLine": waiting, "first": start(engine, engine.backfill.first(queue), now)}


def start(engine: Engine, kept: Shadow | None, now: float) -> dict[str, Any] | None:
    """When the one for whom this is kept starts at the earliest, in seconds from now, and where."""
    if kept is None:
        return None
    first = kept.first
    last = engine.pods.get(first.last)
    return {
        "who": kept.head.who,
        "seconds": round(max(0.0, first.start - now), 1),
        "sure": first.sure,
        "nodes": first.nodes,
        "after": str(last.ref) if last is not None else "",
    }
