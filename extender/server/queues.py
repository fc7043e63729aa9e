"""Queues for people, as JSON."""

from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from extender.engine.backfill.shadow import Shadow
from extender.engine.books.ledger import PodState
from extender.engine.engine import Engine
from extender.engine.gangs.roster import Known
from extender.engine.queues.standing import Standing
from extender.server.desk import Pieces
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
    for number, told in enumerate(_below(engine, engine.tenancy.queues.root, 0)):
        yield b"," * bool(number) + msgspec.json.encode(told)
    yield b"]}"


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
    own |= {"reclaimable": queue.reclaimable, "namespaces": list(queue.namespaces)}
    return {**status, **own, **limits, "namespaceSelector": queue.namespace_selector, "strangers": _strangers(standing)}


def _strangers(standing: Standing) -> dict[str, Any] | None:
    """Pods that name the queue and whose namespaces it does not admit, None if there are none."""
    found = [account for account in standing.strangers if account.waiting or account.running]
    if not found:
        return None
    namespaces = sorted({account.namespace for account in found})
    counts = {"waiting": sum(a.waiting for a in found), "running": sum(a.running for a in found)}
    return {**counts, "namespaces": listed(namespaces, NAMED)}


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


def in_line(engine: Engine, of: Known | PodState, now: float) -> Generator[bytes, None, dict[str, Any]]:
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
