"""The books for people, as JSON: every node, GPU and pod, what waits and why.

Large clusters are told in pieces between which the event loop goes on, so that nobody's look slows a decision.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from extender.engine.books import reservations
from extender.engine.books.ledger import NodeState, PodState
from extender.engine.engine import Engine
from extender.engine.gangs.roster import Known
from extender.engine.moves import relief
from extender.server import queues
from gangfilter.group import GroupKey
from gangfilter.members import PRESENT, Stage
from protos.contract.books import GpuBook, NodeBooks

SLICE = 32
"""Nodes per piece; pods come in pieces ten times as large."""
UNKNOWN = "unknown"
"""The state of a node that has no inventory of ours."""

_encode = msgspec.json.encode


async def cluster(engine: Engine, now: float) -> AsyncIterator[bytes]:
    """The whole cluster, as one JSON object in pieces."""
    for piece in _cluster(engine, now):
        if piece:
            yield piece
        await asyncio.sleep(0)


def _cluster(engine: Engine, now: float) -> Iterator[bytes]:
    nodes = [name for name, node in engine.nodes.items() if node.books is not None or node.problem]
    placed = [uid for uid, pod in engine.pods.items() if pod.ask is not None and pod.state != "waiting"]
    waiting = [uid for uid, pod in engine.pods.items() if pod.ask is None or pod.state == "waiting"]
    yield b'{"nodes":['
    yield from _items(sorted(nodes), SLICE, lambda name: _node_of(engine, name))
    yield b'],"pods":['
    yield from _items(placed, 10 * SLICE, lambda uid: _pod_of(engine, uid))
    yield b'],"waiting":['
    yield from _items(waiting, SLICE, lambda uid: _waiting_of(engine, uid, now))
    yield b'],"groups":['
    keys = {str(key): key for key in sorted(engine.gangs.known)}
    yield from _items(list(keys), SLICE, lambda name: _group_of(engine, keys[name], now))
    overused = 0
    for start in range(0, len(nodes), 10 * SLICE):
        found = [state for name in nodes[start : start + 10 * SLICE] if (state := engine.nodes.get(name)) is not None]
        overused += sum(len(state.books.overused()) for state in found if state.books)
        yield b""
    yield b'],"problems":' + _encode({**_disbelieved(engine), "overused": overused}) + b"}"


def _items(keys: list[str], size: int, of: Callable[[str], dict[str, Any] | None]) -> Iterator[bytes]:
    """A list's items by comma; what is gone meanwhile is left out."""
    comma = b""
    for start in range(0, len(keys), size):
        found = [item for key in keys[start : start + size] if (item := of(key)) is not None]
        if found:
            yield comma + _encode(found)[1:-1]
            comma = b","


def _node_of(engine: Engine, name: str) -> dict[str, Any] | None:
    found = engine.nodes.get(name)
    return node(engine, found) if found is not None else None


def node(engine: Engine, state: NodeState) -> dict[str, Any]:
    """One node: its GPUs and who holds what of them."""
    books = state.books
    inventory = books.inventory if books else None
    return {
        "name": state.name,
        "state": inventory.state if inventory else UNKNOWN,
        "unitMiB": inventory.unit_mib if inventory else engine.settings.unit_mib,
        "slicesPerGpu": inventory.slices_per_gpu if inventory else engine.settings.slices_per_gpu,
        "problem": state.problem or None,
        "gpus": [_gpu(engine, books, book) for book in books.gpus.values()] if books else [],
        "unplaced": [_ref(engine, uid) for uid in books.unplaced()] if books else [],
    }


def _gpu(engine: Engine, books: NodeBooks, book: GpuBook) -> dict[str, Any]:
    uuid = book.gpu.uuid
    held = [(uid, entry.charges[uuid]) for uid, entry in books.entries.items() if uuid in entry.charges]
    return {
        "index": book.gpu.index,
        "uuid": book.gpu.uuid,
        "model": book.gpu.model,
        "health": book.gpu.health,
        "cordoned": book.cordoned,
        "mem": book.gpu.mem,
        "memUsed": book.mem_used,
        "slicesUsed": book.slices_used,
        "whole": bool(book.wholes),
        "pods": [
            {**_ref(engine, uid), "mem": demand.mem, "slices": demand.slices, "whole": demand.whole}
            for uid, demand in held
        ],
    }


def _ref(engine: Engine, uid: str) -> dict[str, str | bool]:
    slot = engine.ledger.slots.get(uid)
    if slot is not None:
        how = "reserved" if uid.startswith(reservations.PREFIX) else "kept"
        return {"namespace": slot.ref.namespace, "name": slot.ref.name, "uid": uid, how: True}
    pod = engine.pods.get(uid)
    return {"namespace": pod.ref.namespace, "name": pod.ref.name, "uid": uid} if pod else {"uid": uid}


def _pod_of(engine: Engine, uid: str) -> dict[str, Any] | None:
    pod = engine.pods.get(uid)
    return placed_pod(pod) if pod is not None else None


def placed_pod(pod: PodState) -> dict[str, Any]:
    """A pod that has a node."""
    return {
        "namespace": pod.ref.namespace,
        "name": pod.ref.name,
        "uid": pod.ref.uid,
        "node": pod.node,
        "state": pod.state,
        "allocation": msgspec.to_builtins(pod.allocation),
        "problem": pod.problem or None,
    }


def _waiting_of(engine: Engine, uid: str, now: float) -> dict[str, Any] | None:
    pod = engine.pods.get(uid)
    return waiting_pod(engine, pod, now) if pod is not None and (pod.ask or pod.refusal) else None


def waiting_pod(engine: Engine, pod: PodState, now: float) -> dict[str, Any]:
    """A pod without a node, and why; `since` is in seconds of waiting."""
    reason = engine.explain(pod)
    return {
        "namespace": pod.ref.namespace,
        "name": pod.ref.name,
        "uid": pod.ref.uid,
        "code": reason.code if reason else "Unasked",
        "sentence": reason.sentence if reason else "kube-scheduler did not ask for it yet, or holds it back itself",
        "numbers": reason.numbers if reason else "",
        "since": round(now - pod.since, 1),
        "queue": queues.of_pod(engine, pod.ref.uid),
        "group": str(known.gang.key) if (known := engine.gangs.of(pod.ref.uid)) else "",
        "reservation": _reservation(engine, pod, now),
        "earliest": _earliest(engine, f"gang {known.gang.key}" if known else str(pod.ref), now),
    }


def _earliest(engine: Engine, who: str, now: float) -> dict[str, Any] | None:
    """When one that is first in line has room at the earliest, and where; None of everybody else."""
    return queues.start(engine, engine.backfill.of(who), now)


def _reservation(engine: Engine, pod: PodState, now: float) -> dict[str, Any] | None:
    """The room that is kept for a pod, and whether all of it is free by now."""
    kept = engine.reservations.of(pod.ref.uid)
    if kept is None or kept.spot is None:
        return None
    return {
        "node": kept.spot.node,
        "gpus": relief.indexes(kept.spot.charges, engine.nodes.get(kept.spot.node)),
        "complete": kept.complete,
        "seconds": round(max(0.0, kept.until - now), 1),
    }


def _group_of(engine: Engine, key: GroupKey, now: float) -> dict[str, Any] | None:
    known = engine.gangs.known.get(key)
    return group(known, now) if known is not None else None


def group(known: Known, now: float) -> dict[str, Any]:
    """A gang: its phase and, where it waits, why; `since` is in seconds of that phase."""
    gang, reason = known.gang, known.reason
    return {
        "namespace": gang.key.namespace,
        "name": gang.key.name,
        "phase": gang.phase,
        "since": round(now - gang.since, 1),
        "minMember": gang.terms.min_member,
        "epoch": gang.epoch,
        "present": gang.count(*PRESENT),
        "bound": gang.count(Stage.BOUND),
        "succeeded": gang.count(Stage.SUCCEEDED),
        "code": reason.code if reason else "",
        "sentence": reason.sentence if reason else "",
        "numbers": reason.numbers if reason else "",
    }


async def group_explanation(engine: Engine, key: GroupKey, now: float) -> dict[str, Any] | None:
    """A gang by name, with its members; None if there is none."""
    known = engine.gangs.known.get(key)
    if known is None:
        return None
    line = await queues.in_line(engine, known, now)
    slots = [
        {
            "name": "" if slot.grown else slot.keeper.ref.name,
            "role": slot.role,
            "node": slot.spot.node,
            "gpus": sorted({share.index for given in slot.spot.shares.values() for share in given}),
            "seconds": round(max(0.0, slot.spot.until - now), 1),
        }
        for slot in known.slots
    ]
    members = [
        {"name": m.name, "uid": m.uid, "role": m.role, "stage": m.stage.name.capitalize(), "node": m.node}
        for m in known.gang.at(*Stage)
    ]
    conflicts = list(known.gang.terms.conflicts)
    queue = {**queues.of_group(engine, known), **line, "earliest": _earliest(engine, f"gang {key}", now)}
    return {**group(known, now), **queue, "conflicts": conflicts, "members": members, "slots": slots}


def _disbelieved(engine: Engine) -> dict[str, int]:
    """Pods whose allocation annotation is not what it should be."""
    kinds = [pod.problem.partition(":")[0] for pod in engine.pods.values() if pod.problem]
    forged = kinds.count("forged") + sum(pod.forged for pod in engine.pods.values())
    return {"forged": forged, "malformed": kinds.count("malformed") + kinds.count("newer")}


async def explanation(engine: Engine, namespace: str, name: str, now: float) -> dict[str, Any] | None:
    """A pod by name: where it is, or why it waits, and what it costs there and elsewhere; None if there is none."""
    found = [pod for pod in engine.pods.values() if (pod.ref.namespace, pod.ref.name) == (namespace, name)]
    if not found:
        return None
    pod = max(found, key=lambda pod: pod.since)  # an earlier pod of that name may still be ending
    while engine.worth.prepare(pod):  # noqa: ASYNC110  # nobody tells: the work is done here
        await asyncio.sleep(0)
    line = await queues.in_line(engine, engine.gangs.of(pod.ref.uid) or pod, now)
    why = {**waiting_pod(engine, pod, now), **line} if pod.state == "waiting" else {}
    return {**placed_pod(pod), **why, "asksGpus": pod.asked is not None, "ranking": _ranking(engine, pod)}


def _ranking(engine: Engine, pod: PodState) -> list[dict[str, Any]]:
    """The best nodes for a pod and its own, with its score on each and the terms of that."""
    return [
        {"node": row.node, "score": row.points, "terms": row.terms, "here": row.here} for row in engine.worth.rows(pod)
    ]
