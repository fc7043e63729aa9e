"""The pages of one node, GPU or queue."""

from collections.abc import Generator
from heapq import nsmallest
from http import HTTPStatus
from itertools import islice

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.policies.backfill.heads import QueuePosition
from extender.engine.queueing.queue_node import QueueNode
from extender.engine.state.node_state import NodeState
from extender.server import inspect, verdicts
from extender.server.desk import Pieces, Refusal, current, wanted
from extender.server.listings import listed_queue
from extender.wire.answers import GpuPage, Link, Node, NodePage
from extender.wire.listings import QueuePage, Waiter
from protos.contract.isolation import INSTANCE
from protos.contract.queue import shown

LINE_SLICE = 100
"""Pending workloads looked at between two pieces."""
FIRST = 5
"""Workloads at the head of a queue that are named."""
GIB = 1 << 30


def node(engine: Engine, name: str) -> Pieces:
    """One node by name; raises Refusal."""
    state = engine.nodes.get(name)
    if state is None or not state.seen:
        raise Refusal(HTTPStatus.NOT_FOUND, f"{name}: no such node")
    yield b""
    yield msgspec.json.encode(whole(engine, state))


def page(engine: Engine, state: NodeState) -> NodePage:
    """What lists show of one node."""
    fields = inspect.node_fields(engine, state)
    free = {"cpu": shown("cpu", max(0, state.room("cpu"))), "memory": f"{max(0, state.room('memory')) // GIB}Gi"}
    return NodePage(**fields, verdict=verdicts.of_node(Node(**fields), state), free=free)


def whole(engine: Engine, state: NodeState) -> NodePage:
    """All about one node, with the links between its GPUs."""
    found = state.books.inventory.links if state.books is not None else ()
    links = tuple(Link(gpus=(a, b), kind=kind) for a, b, kind in found)
    return msgspec.structs.replace(page(engine, state), links=links)


def gpu(engine: Engine, uuid: str) -> Pieces:
    """One GPU by UUID; raises Refusal."""

    def has(state: NodeState) -> bool:
        book = state.books.gpus.get(uuid) if state.seen and state.books is not None else None
        return book is not None and inspect.exists(book)

    found = yield from wanted(current(engine.nodes), has)
    if not found:
        raise Refusal(HTTPStatus.NOT_FOUND, f"{uuid}: no such GPU")
    on = page(engine, found[0])
    gpu = next(each for each in on.gpus if each.uuid == uuid)
    yield msgspec.json.encode(
        GpuPage(
            node=on.name,
            unit_mib=on.unit_mib,
            slices_per_gpu=on.slices_per_gpu,
            gpu=gpu,
            verdict=verdicts.of_gpu(gpu, on.verdict, on.name),
            isolation=INSTANCE if gpu.profile else on.isolation,
            isolation_why="" if gpu.profile else on.isolation_why,
        )
    )


def queue(engine: Engine, name: str, now: float) -> Pieces:
    """One queue by name, and the first of its pending workloads; raises Refusal."""
    queue_node = engine.tenancy.queues.queue_nodes.get(name)
    if queue_node is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"{name}: no such queue")
    count, first = yield from _line(engine, queue_node)
    listed = listed_queue(engine, queue_node, sum(1 for _ in queue_node.path) - 1)
    yield msgspec.json.encode(
        QueuePage(
            **msgspec.structs.asdict(listed),
            verdict=verdicts.of_queue(listed),
            in_line=count,
            line=tuple(Waiter(who=each.turn.name, seconds=round(now - each.turn.since, 1)) for each in first),
            first=inspect.start(engine, engine.backfill.first(queue_node), now),
        )
    )


def _line(engine: Engine, queue_node: QueueNode) -> Generator[bytes, None, tuple[int, list[QueuePosition]]]:
    """How many workloads are pending in the queue itself, and the first of these."""
    first, count = list[QueuePosition](), 0
    positions = engine.backfill.heads.everybody()
    while some := list(islice(positions, LINE_SLICE)):
        here = [each for each in some if each is not None and engine.backfill.heads.queue(each) is queue_node]
        first, count = nsmallest(FIRST, [*first, *here], key=lambda each: each.turn), count + len(here)
        yield b""
    return count, first
