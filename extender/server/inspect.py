"""The books for people, as JSON: every node, GPU and pod, what waits and why.

Pages are told in pieces, of which none takes long to make: between them kube-scheduler has its turn.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.planning import defrag_plan
from extender.engine.state import reservations
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.quarantine import Quarantined
from extender.engine.state.roster import GangInfo
from extender.engine.types.subject import Subject
from extender.server import queues
from extender.server.desk import Pieces
from extender.server.lists import items
from extender.wire.answers import Earliest, Gang, Gpu, Holder, Node, PlacedPod, Problems, Ref, Reservation, WaitingPod
from gangfilter.group import GroupKey
from gangfilter.members import PRESENT, Stage
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook

UNKNOWN = "unknown"
"""The state of a node that has no inventory of ours."""

_encode = msgspec.json.encode


def cluster(engine: Engine, now: float) -> Pieces:
    """The whole cluster, as one JSON object."""
    problems: Counter[str] = Counter()
    yield b'{"nodes":['
    yield from items(sorted(engine.nodes), lambda name: _node_of(engine, name, problems))
    yield b'],"pods":['
    yield from items(engine.pods, lambda uid: _pod_of(engine, uid, problems))
    yield b'],"waiting":['
    yield from items(engine.pods, lambda uid: _waiting_of(engine, uid, now))
    yield b'],"groups":['
    yield from items(engine.gangs.roster.known, lambda key: _group_of(engine, key, now))
    aside = [_aside(engine, subject, each, now) for subject, each in engine.quarantine.all()]
    yield b'],"aside":' + _encode(aside)
    counts = {kind: problems[kind] for kind in ("forged", "malformed", "overused")}
    yield b',"problems":' + _encode(Problems(**counts, set_aside=len(aside))) + b"}"


def _node_of(engine: Engine, name: str, problems: Counter[str]) -> Node | None:
    found = engine.nodes.get(name)
    if found is None or (found.books is None and not found.problem):
        return None
    problems["overused"] += len(found.books.overused()) if found.books else 0
    return node(engine, found)


def node(engine: Engine, state: NodeState) -> Node:
    """One node: its GPUs and who holds what of them."""
    books = state.books
    inventory = books.inventory if books else None
    holders = _holders(engine, books) if books else {}
    return Node(
        name=state.name,
        state=inventory.state if inventory else UNKNOWN,
        unit_mib=inventory.unit_mib if inventory else engine.settings.unit_mib,
        slices_per_gpu=inventory.slices_per_gpu if inventory else engine.settings.slices_per_gpu,
        problem=state.problem or None,
        gpus=tuple(_gpu(book, holders.get(uuid, [])) for uuid, book in books.gpus.items()) if books else (),
        unplaced=tuple(Ref(**_ref(engine, uid)) for uid in books.unplaced()) if books else (),
    )


def _holders(engine: Engine, books: NodeBooks) -> dict[str, list[Holder]]:
    """Who holds what, by GPU."""
    found: dict[str, list[Holder]] = {}
    for uid, entry in books.entries.items():
        for uuid, demand in entry.charges.items():
            holder = Holder(**_ref(engine, uid), mem=demand.mem, slices=demand.slices, whole=demand.whole)
            found.setdefault(uuid, []).append(holder)
    return found


def _gpu(book: GpuBook, holders: Iterable[Holder]) -> Gpu:
    return Gpu(
        index=book.gpu.index,
        uuid=book.gpu.uuid,
        model=book.gpu.model,
        health=book.gpu.health,
        cordoned=book.cordoned,
        mem=book.gpu.mem,
        mem_used=book.mem_used,
        slices_used=book.slices_used,
        whole=bool(book.wholes),
        pods=tuple(holders),
    )


def _ref(engine: Engine, uid: str) -> dict[str, Any]:
    """The fields of a `Ref`."""
    slot = engine.ledger.keepers.get(uid)
    if slot is not None:
        how = "reserved" if uid.startswith(reservations.PREFIX) else "kept"
        return {"namespace": slot.ref.namespace, "name": slot.ref.name, "uid": uid, how: True}
    pod = engine.pods.get(uid)
    return {"namespace": pod.ref.namespace, "name": pod.ref.name, "uid": uid} if pod else {"uid": uid}


def _pod_of(engine: Engine, uid: str, problems: Counter[str]) -> PlacedPod | None:
    pod = engine.pods.get(uid)
    if pod is None:
        return None
    kind = pod.problem.partition(":")[0]
    problems["malformed" if kind == "newer" else kind] += 1
    problems["forged"] += pod.forged
    return placed_pod(engine, pod) if pod.ask is not None and pod.state != "waiting" else None


def _aside(engine: Engine, subject: Subject, aside: Quarantined, now: float) -> dict[str, Any]:
    """One that was set aside after an error of ours; `since` is in seconds of that."""
    pod = engine.pods.get(subject.key) if subject.kind == "pod" else None
    name = str(pod.ref) if pod is not None else subject.key
    told = {"place": aside.place, "error": aside.problem, "faults": aside.faults}
    return {"kind": subject.kind, "name": name, **told, "since": round(now - aside.since, 1)}


def placed_pod(engine: Engine, pod: PodState) -> PlacedPod:
    """A pod that has a node."""
    return PlacedPod(
        namespace=pod.ref.namespace,
        name=pod.ref.name,
        uid=pod.ref.uid,
        node=pod.node,
        state=pod.state,
        allocation=pod.allocation,
        problem=pod.problem or (str(aside) if (aside := engine.set_aside(pod)) is not None else None),
    )


def _waiting_of(engine: Engine, uid: str, now: float) -> WaitingPod | None:
    pod = engine.pods.get(uid)
    return waiting_pod(engine, pod, now) if pod is not None and engine.tenancy.pending(pod) else None


def waiting_pod(engine: Engine, pod: PodState, now: float) -> WaitingPod:
    """A pod without a node, and why; `since` is in seconds of waiting."""
    reason, known = engine.explain(pod), engine.gangs.roster.of(pod.ref.uid)
    return WaitingPod(
        namespace=pod.ref.namespace,
        name=pod.ref.name,
        uid=pod.ref.uid,
        code=reason.code if reason else "Unasked",
        sentence=reason.sentence if reason else "kube-scheduler did not ask for it yet, or holds it back itself",
        numbers=reason.numbers if reason else "",
        since=round(now - pod.since, 1),
        queue=queues.of_pod(engine, pod.ref.uid),
        group=str(known.gang.key) if known else "",
        reservation=_reservation(engine, pod, now),
        earliest=earliest(engine, f"gang {known.gang.key}" if known else str(pod.ref), now),
    )


def earliest(engine: Engine, who: str, now: float) -> Earliest | None:
    """When one that is first in line has room at the earliest, and where; None of everybody else."""
    return queues.start(engine, engine.backfill.of(who), now)


def _reservation(engine: Engine, pod: PodState, now: float) -> Reservation | None:
    """The room that is kept for a pod, and whether all of it is free by now."""
    kept = engine.reservations.of(pod.ref.uid)
    if kept is None or kept.assignment is None:
        return None
    return Reservation(
        node=kept.assignment.node,
        gpus=tuple(defrag_plan.indexes(kept.assignment.charges, engine.nodes.get(kept.assignment.node))),
        complete=kept.complete,
        seconds=round(max(0.0, kept.until - now), 1),
    )


def _group_of(engine: Engine, key: GroupKey, now: float) -> Gang | None:
    known = engine.gangs.roster.known.get(key)
    return group(known, now) if known is not None else None


def group(known: GangInfo, now: float) -> Gang:
    """A gang: its phase and, where it waits, why; `since` is in seconds of that phase."""
    gang, reason = known.gang, known.reason
    return Gang(
        namespace=gang.key.namespace,
        name=gang.key.name,
        phase=gang.phase,
        since=round(now - gang.since, 1),
        min_member=gang.terms.min_member,
        epoch=gang.epoch,
        present=gang.count(*PRESENT),
        bound=gang.count(Stage.BOUND),
        succeeded=gang.count(Stage.SUCCEEDED),
        code=reason.code if reason else "",
        sentence=reason.sentence if reason else "",
        numbers=reason.numbers if reason else "",
    )
