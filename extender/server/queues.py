"""Queues for people, as JSON."""

from collections.abc import Iterator
from typing import Any

import msgspec

from extender.engine.engine import Engine
from extender.engine.gangs.roster import Known
from extender.engine.queues.standing import Standing
from gangfilter.gang import Gang
from gangfilter.table import Phase
from protos.contract.queue import shown


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
    """The queue of a gang; for one that waits also how many gangs wait, and which of them it is."""
    admission = engine.tenancy.admission
    account = admission.account(known.gang)
    told: dict[str, Any] = {"queue": engine.tenancy.queues.at(account).name}
    if known.gang.phase is not Phase.WAITING:
        return told

    def turn(gang: Gang) -> tuple[object, ...]:
        return admission.standing(admission.account(gang)), engine.gangs.starts.turns.place(gang)

    waiting = [turn(other.gang) for other in engine.gangs.known.values() if other.gang.phase is Phase.WAITING]
    told |= {"place": 1 + sum(other < turn(known.gang) for other in waiting), "inLine": len(waiting)}
    withheld = engine.gangs.starts.withheld(known.gang)
    if withheld is not None:  # with the numbers of this moment
        told |= {"code": withheld.code, "sentence": withheld.sentence, "numbers": withheld.numbers}
    return told


def of_pod(engine: Engine, uid: str) -> str:
    """The queue that a pod is in, "" if none."""
    account = engine.tenancy.queues.of(uid)
    return engine.tenancy.queues.at(account).name if account is not None else ""
