"""The page of the whole cluster: every node, GPU and pod, and why pods are pending.

It is made in small pieces, so that kube-scheduler's questions are answered in between.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict

from extender.engine.cycle.engine import Engine
from extender.engine.planning import defrag_plan
from extender.engine.policies.backfill.reservation import BackfillReservation
from extender.engine.state import reservations
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.quarantine import Quarantined
from extender.engine.state.roster import GangInfo
from extender.engine.types.subject import Subject
from extender.server.desk import Pieces, current, joined
from extender.wire.answers import Earliest, Gang, Gpu, Holder, Node, PlacedPod, Problems, Ref, Reservation, WaitingPod
from gangfilter.members import PRESENT, Stage
from protos.contract import mig
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook
from protos.contract.inventory import Instance

UNKNOWN = "unknown"
"""The state of a node without an inventory of ours."""

_encode = msgspec.json.encode


def cluster(engine: Engine, now: float) -> Pieces:
    """The whole cluster, as one JSON object."""
    problems: Counter[str] = Counter()
    nodes = current(engine.nodes, sorted(engine.nodes))
    yield b'{"nodes":['
    yield from joined(_listed_node(engine, state, problems) for state in nodes)
    yield b'],"pods":['
    yield from joined(_listed_pod(engine, pod, problems) for pod in current(engine.pods))
    yield b'],"waiting":['
    pending = engine.tenancy.pending
    yield from joined(waiting_pod(engine, pod, now) if pending(pod) else None for pod in current(engine.pods))
    yield b'],"groups":['
    yield from joined(gang(info, now) for info in current(engine.gangs.roster.known))
    quarantined = [_quarantined(engine, subject, each, now) for subject, each in engine.quarantine.all()]
    yield b'],"aside":' + _encode(quarantined)
    counts = {kind: problems[kind] for kind in ("forged", "malformed", "overused")}
    yield b',"problems":' + _encode(Problems(**counts, set_aside=len(quarantined))) + b"}"


def _listed_node(engine: Engine, state: NodeState, problems: Counter[str]) -> Node | None:
    if state.books is None and not state.problem:
        return None
    problems["overused"] += len(state.books.overused()) if state.books else 0
    return node(engine, state)


def node(engine: Engine, state: NodeState) -> Node:
    """One node: its GPUs and the pods on them."""
    return Node(**node_fields(engine, state))


def node_fields(engine: Engine, state: NodeState) -> dict[str, Any]:
    """The fields of a `Node`."""
    books = state.books
    inventory = books.inventory if books else None
    holders = pods_by_gpu(engine, books) if books else {}
    isolation = inventory.isolation if inventory else None
    return {
        "name": state.name,
        "state": inventory.state if inventory else UNKNOWN,
        "unit_mib": inventory.unit_mib if inventory else engine.settings.unit_mib,
        "slices_per_gpu": inventory.slices_per_gpu if inventory else engine.settings.slices_per_gpu,
        "problem": state.problem or (str(state.told[0]) if state.told else None),
        "unschedulable": state.unschedulable,
        "gpus": tuple(_gpus(books, holders)) if books else (),
        "unplaced": tuple(Ref(**_ref(engine, uid)) for uid in books.unplaced()) if books else (),
        "isolation": str(isolation) if isolation else "",
        "isolation_why": isolation.why if isolation else "",
    }


def pods_by_gpu(engine: Engine, books: NodeBooks) -> dict[str, list[Holder]]:
    """The pods of each GPU, and what they have of it, by UUID."""
    holders: dict[str, list[Holder]] = {}
    for uid, entry in books.entries.items():
        about = {**_ref(engine, uid), "queue": _queue(engine, uid)}
        for uuid, demand in entry.charges.items():
            holder = Holder(**about, mem=demand.mem, slices=demand.slices, whole=demand.whole)
            holders.setdefault(uuid, []).append(holder)
    return holders


def _gpus(books: NodeBooks, holders: Mapping[str, Iterable[Holder]]) -> Iterator[Gpu]:
    """The GPUs and MIG instances that exist; of those that are made on demand the ones that pods have."""
    makes: dict[str, Counter[str]] = {}
    for instance in books.on_demand.possible(books.gpus) if books.on_demand else ():
        place = mig.place(instance.uuid)
        if place is not None:
            makes.setdefault(place.gpu, Counter())[place.profile] += 1
    for uuid, book in books.gpus.items():
        if exists(book):
            yield _gpu(book, holders.get(uuid, ()), makes.get(uuid, {}))


def exists(book: GpuBook) -> bool:
    """Whether it is more than a MIG instance that could be made."""
    return not isinstance(book.gpu, Instance) or bool(book.wholes)


def _gpu(book: GpuBook, holders: Iterable[Holder], makes: Mapping[str, int]) -> Gpu:
    return Gpu(
        index=book.gpu.index,
        uuid=book.gpu.uuid,
        model=book.gpu.model,
        profile=book.gpu.profile,
        health=book.gpu.health,
        cordoned=book.cordoned,
        mem=book.gpu.mem,
        mem_used=book.mem_used,
        slices_used=book.slices_used,
        slices=book.slices_per_gpu if book.gpu.mig else 0,
        whole=bool(book.wholes),
        on_demand=book.divisible,
        makes=", ".join(f"{profile} ×{count}" for profile, count in sorted(makes.items())),
        pods=tuple(holders),
    )


def _ref(engine: Engine, uid: str) -> dict[str, Any]:
    """The fields of a `Ref`."""
    hold = engine.ledger.keepers.get(uid)
    if hold is not None:
        kind = "reserved" if uid.startswith(reservations.PREFIX) else "kept"
        return {**asdict(hold.ref), "uid": uid, kind: True}
    pod = engine.pods.get(uid)
    return asdict(pod.ref) if pod else {"uid": uid}


def _listed_pod(engine: Engine, pod: PodState, problems: Counter[str]) -> PlacedPod | None:
    kind = pod.problem.partition(":")[0]
    problems["malformed" if kind == "newer" else kind] += 1
    problems["forged"] += pod.forged
    return placed_pod(engine, pod) if pod.ask is not None and pod.state != "waiting" else None


def _quarantined(engine: Engine, subject: Subject, found: Quarantined, now: float) -> dict[str, Any]:
    """An object in quarantine; `since` is the time there, in seconds."""
    pod = engine.pods.get(subject.key) if subject.kind == "pod" else None
    return {
        "kind": subject.kind,
        "name": str(pod.ref) if pod is not None else subject.key,
        "place": found.place,
        "error": found.problem,
        "faults": found.faults,
        "since": round(now - found.since, 1),
    }


def placed_pod(engine: Engine, pod: PodState) -> PlacedPod:
    """A pod that has a node."""
    return PlacedPod(
        **asdict(pod.ref),
        node=pod.node,
        queue=_queue(engine, pod.ref.uid),
        state=pod.state,
        allocation=pod.booked,
        problem=pod.problem or (str(reason) if (reason := engine.set_aside(pod)) is not None else None),
    )


def waiting_pod(engine: Engine, pod: PodState, now: float) -> WaitingPod:
    """A pending pod and the reason; `since` is its waiting time in seconds."""
    info = engine.gangs.roster.of(pod.ref.uid)
    return WaitingPod(
        **asdict(pod.ref),
        **asdict(engine.explain(pod)),
        since=round(now - pod.since, 1),
        queue=_queue(engine, pod.ref.uid),
        group=str(info.gang.key) if info else "",
        reservation=_reservation(engine, pod, now),
        earliest=earliest(engine, f"gang {info.gang.key}" if info else str(pod.ref), now),
    )


def earliest(engine: Engine, workload: str, now: float) -> Earliest | None:
    """The earliest start of a workload that is first in its queue; None for all others."""
    return start(engine, engine.backfill.of(workload), now)


def start(engine: Engine, reservation: BackfillReservation | None, now: float) -> Earliest | None:
    """The earliest start of the workload that has this reservation, in seconds from now, and its nodes."""
    if reservation is None:
        return None
    first = reservation.first
    last = engine.pods.get(first.last)
    return Earliest(
        who=reservation.head.who,
        seconds=round(max(0.0, first.start - now), 1),
        sure=first.sure,
        nodes=first.nodes,
        after=str(last.ref) if last is not None else "",
    )


def _queue(engine: Engine, uid: str) -> str:
    """The queue of a pod, "" if it has none."""
    local_queue = engine.tenancy.queues.of(uid)
    return engine.tenancy.queues.at(local_queue).name if local_queue is not None else ""


def _reservation(engine: Engine, pod: PodState, now: float) -> Reservation | None:
    reservation = engine.reservations.of(pod.ref.uid)
    if reservation is None or reservation.assignment is None:
        return None
    assignment = reservation.assignment
    return Reservation(
        node=assignment.node,
        gpus=tuple(defrag_plan.indexes(assignment.charges, engine.nodes.get(assignment.node))),
        complete=reservation.complete,
        seconds=round(max(0.0, reservation.until - now), 1),
    )


def gang(info: GangInfo, now: float) -> Gang:
    """A gang: its phase and, if it is pending, the reason; `since` is its time in this phase, in seconds."""
    gang = info.gang
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
        **(asdict(info.reason) if info.reason else {}),
    )
