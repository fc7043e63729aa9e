"""The pages that list GpuClasses, GPU models and queues."""

from collections.abc import Iterator, Mapping

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.queueing.queue_node import QueueNode
from extender.server.desk import Pieces, json_object
from extender.wire.listings import GpuClass, MissingClass, Model, Queue, Strangers
from protos.contract.queue import shown
from protos.contract.reason import listed

NAMED = 5
"""Namespaces that are named; the others are counted."""


def classes(engine: Engine) -> Pieces:
    """All classes and GPU models, with their GPUs, the wholly free ones of these, and their nodes."""
    lists = {"classes": gpu_classes(engine), "missing": missing_classes(engine), "models": models(engine)}
    yield from json_object({}, lists)


def gpu_classes(engine: Engine) -> Iterator[GpuClass]:
    """The classes, one by one."""
    for status in engine.classes.statuses():
        gpu_class = engine.classes.known.get(status.name)
        if gpu_class is not None:  # it may be deleted between two pieces
            yield GpuClass(
                **{**msgspec.structs.asdict(status), "problem": status.problem or None},
                description=gpu_class.description,
                waiting=len(engine.classes.pods(status.name)),
            )


def missing_classes(engine: Engine) -> Iterator[MissingClass]:
    """The classes that pending pods name and that do not exist."""
    for name in engine.classes.missing():
        yield MissingClass(name=name, waiting=len(engine.classes.pods(name)))


def models(engine: Engine) -> Iterator[Model]:
    """The models of GPUs."""
    stock = engine.ledger.stock
    for kind, nodes in stock.kinds():
        yield Model(
            model=kind.model,
            profile=kind.profile,
            mem=kind.mem,
            mem_mib=kind.mem_mib,
            clock_mhz=kind.clock_mhz,
            compute_capability=kind.cc,
            gpus=stock.gpus[kind],
            free=stock.free[kind],
            nodes=nodes,
        )


def queues(engine: Engine) -> Pieces:
    """All queues by name, each after its parent."""
    yield from json_object({}, {"queues": tree(engine)})


def tree(engine: Engine) -> Iterator[Queue]:
    """The same, one by one."""
    return _below(engine, engine.tenancy.queues.root, 0)


def _below(engine: Engine, parent: QueueNode, depth: int) -> Iterator[Queue]:
    for queue_node in sorted(parent.below, key=lambda each: each.name):
        yield listed_queue(engine, queue_node, depth)
        yield from _below(engine, queue_node, depth + 1)


def listed_queue(engine: Engine, queue_node: QueueNode, depth: int) -> Queue:
    """One queue; `depth`: the queues above it, without the root."""
    queue = queue_node.queue
    return Queue(
        **msgspec.structs.asdict(engine.tenancy.status(queue_node)),
        closed_by=queue_node.shut.name if queue_node.shut is not None else "",
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
    """Pods that name the queue and whose namespaces it does not admit; None if there are none."""
    local_queues = [each for each in queue_node.strangers if each.waiting or each.running]
    if not local_queues:
        return None
    return Strangers(
        waiting=sum(each.waiting for each in local_queues),
        running=sum(each.running for each in local_queues),
        namespaces=listed(sorted({each.namespace for each in local_queues}), NAMED),
    )
