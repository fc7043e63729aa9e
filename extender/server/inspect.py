"""The books for people, as JSON: every node, GPU and pod, what waits and why.

Pages are told in pieces, of which none takes long to make: between them kube-scheduler has its turn.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.planning import defrag_plan
from extender.engine.state import reservations
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.quarantine import Quarantined
from extender.engine.state.roster import GangInfo, ReplacementHold
from extender.engine.types.subject import Subject
from extender.server import queues
from extender.server.desk import Pieces, missing
from gangfilter.group import GroupKey
from gangfilter.members import PRESENT, Member, Stage
from protos.contract.ask import Demand
from protos.contract.books import NodeBooks
from protos.contract.gpu_book import GpuBook

SLICE = 200
"""Pods looked at between two pieces, where little is done for each."""
SHOWN_NAMES = 5
"""Names of gangs told where there is none of the name asked for."""
UNKNOWN = "unknown"
"""The state of a node that has no inventory of ours."""

_encode = msgspec.json.encode
Told = Generator[bytes, None, dict[str, Any]]
"""Pauses, then what is told."""
T = TypeVar("T")


def cluster(engine: Engine, now: float) -> Pieces:
    """The whole cluster, as one JSON object."""
    problems: Counter[str] = Counter()
    yield b'{"nodes":['
    yield from _items(sorted(engine.nodes), lambda name: _node_of(engine, name, problems))
    yield b'],"pods":['
    yield from _items(engine.pods, lambda uid: _pod_of(engine, uid, problems))
    yield b'],"waiting":['
    yield from _items(engine.pods, lambda uid: _waiting_of(engine, uid, now))
    yield b'],"groups":['
    yield from _items(engine.gangs.roster.known, lambda key: _group_of(engine, key, now))
    aside = [_aside(engine, subject, each, now) for subject, each in engine.quarantine.all()]
    yield b'],"aside":' + _encode(aside)
    problems["setAside"] = len(aside)
    kinds = ("forged", "malformed", "overused", "setAside")
    yield b',"problems":' + _encode({name: problems[name] for name in kinds}) + b"}"


def with_lists(told: Mapping[str, Any], lists: Mapping[str, Iterable[dict[str, Any] | None]]) -> Pieces:
    """An object that has long lists beside what is told of it."""
    yield _encode(told)[:-1]
    for name, items in lists.items():
        yield b"," + _encode(name) + b":["
        yield from _told(items)
        yield b"]"
    yield b"}"


def _items(keys: Iterable[T], of: Callable[[T], dict[str, Any] | None]) -> Pieces:
    """A list's items by comma; what is gone meanwhile is left out."""
    return _told(map(of, list(keys)))


def _told(items: Iterable[dict[str, Any] | None]) -> Pieces:
    comma = b""
    for item in items:
        if item is None:
            yield b""
        else:
            yield comma + _encode(item)
            comma = b","


def _node_of(engine: Engine, name: str, problems: Counter[str]) -> dict[str, Any] | None:
    found = engine.nodes.get(name)
    if found is None or (found.books is None and not found.problem):
        return None
    problems["overused"] += len(found.books.overused()) if found.books else 0
    return node(engine, found)


def node(engine: Engine, state: NodeState) -> dict[str, Any]:
    """One node: its GPUs and who holds what of them."""
    books = state.books
    inventory = books.inventory if books else None
    holders = _holders(engine, books) if books else {}
    return {
        "name": state.name,
        "state": inventory.state if inventory else UNKNOWN,
        "unitMiB": inventory.unit_mib if inventory else engine.settings.unit_mib,
        "slicesPerGpu": inventory.slices_per_gpu if inventory else engine.settings.slices_per_gpu,
        "problem": state.problem or None,
        "gpus": [_gpu(book, holders.get(uuid, [])) for uuid, book in books.gpus.items()] if books else [],
        "unplaced": [_ref(engine, uid) for uid in books.unplaced()] if books else [],
    }


def _holders(engine: Engine, books: NodeBooks) -> dict[str, list[dict[str, Any]]]:
    """Who holds what, by GPU."""
    found: dict[str, list[dict[str, Any]]] = {}
    for uid, entry in books.entries.items():
        for uuid, demand in entry.charges.items():
            found.setdefault(uuid, []).append(_holder(engine, uid, demand))
    return found


def _holder(engine: Engine, uid: str, demand: Demand) -> dict[str, Any]:
    return {**_ref(engine, uid), "mem": demand.mem, "slices": demand.slices, "whole": demand.whole}


def _gpu(book: GpuBook, holders: list[dict[str, Any]]) -> dict[str, Any]:
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
        "pods": holders,
    }


def _ref(engine: Engine, uid: str) -> dict[str, str | bool]:
    slot = engine.ledger.keepers.get(uid)
    if slot is not None:
        how = "reserved" if uid.startswith(reservations.PREFIX) else "kept"
        return {"namespace": slot.ref.namespace, "name": slot.ref.name, "uid": uid, how: True}
    pod = engine.pods.get(uid)
    return {"namespace": pod.ref.namespace, "name": pod.ref.name, "uid": uid} if pod else {"uid": uid}


def _pod_of(engine: Engine, uid: str, problems: Counter[str]) -> dict[str, Any] | None:
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


def placed_pod(engine: Engine, pod: PodState) -> dict[str, Any]:
    """A pod that has a node."""
    return {
        "namespace": pod.ref.namespace,
        "name": pod.ref.name,
        "uid": pod.ref.uid,
        "node": pod.node,
        "state": pod.state,
        "allocation": msgspec.to_builtins(pod.allocation),
        "problem": pod.problem or (str(aside) if (aside := engine.set_aside(pod)) is not None else None),
    }


def _waiting_of(engine: Engine, uid: str, now: float) -> dict[str, Any] | None:
    pod = engine.pods.get(uid)
    return waiting_pod(engine, pod, now) if pod is not None and engine.tenancy.pending(pod) else None


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
        "group": str(known.gang.key) if (known := engine.gangs.roster.of(pod.ref.uid)) else "",
        "reservation": _reservation(engine, pod, now),
        "earliest": _earliest(engine, f"gang {known.gang.key}" if known else str(pod.ref), now),
    }


def _earliest(engine: Engine, who: str, now: float) -> dict[str, Any] | None:
    """When one that is first in line has room at the earliest, and where; None of everybody else."""
    return queues.start(engine, engine.backfill.of(who), now)


def _reservation(engine: Engine, pod: PodState, now: float) -> dict[str, Any] | None:
    """The room that is kept for a pod, and whether all of it is free by now."""
    kept = engine.reservations.of(pod.ref.uid)
    if kept is None or kept.assignment is None:
        return None
    return {
        "node": kept.assignment.node,
        "gpus": defrag_plan.indexes(kept.assignment.charges, engine.nodes.get(kept.assignment.node)),
        "complete": kept.complete,
        "seconds": round(max(0.0, kept.until - now), 1),
    }


def _group_of(engine: Engine, key: GroupKey, now: float) -> dict[str, Any] | None:
    known = engine.gangs.roster.known.get(key)
    return group(known, now) if known is not None else None


def group(known: GangInfo, now: float) -> dict[str, Any]:
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


def page(told: Told) -> Pieces:
    """One object as a whole answer."""
    yield _encode((yield from told))


def node_explanation(engine: Engine, name: str) -> Told:
    """One node by name; raises Refusal."""
    found = engine.nodes.get(name)
    if found is None:
        raise missing(f"{name}: no such node")
    yield b""
    return node(engine, found)


def alike(engine: Engine, key: GroupKey) -> Generator[bytes, None, str]:
    """What to ask for where there is no gang of this name: those of its namespace whose names begin alike."""
    start = key.name.split("-")[0]
    names = []
    for number, other in enumerate(list(engine.gangs.roster.known)):
        if other.namespace == key.namespace and other.name.startswith(start):
            names.append(other.name)
        if number % SLICE == 0:
            yield b""
    if not names:
        return f"{key}: no such gang"
    names.sort()
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    hint = "Volcano's Jobs name theirs NAME-UID"
    return f"{key}: no such gang; there are {', '.join(names[:SHOWN_NAMES])}{more} ({hint})"


def group_explanation(engine: Engine, key: GroupKey, now: float) -> Pieces:
    """A gang by name, with its members; raises Refusal."""
    known = engine.gangs.roster.known.get(key)
    if known is None:
        raise missing((yield from alike(engine, key)))
    line = yield from queues.in_line(engine, known, now)
    conflicts = list(known.gang.terms.conflicts)
    queue = {**queues.of_group(engine, known), **line, "earliest": _earliest(engine, f"gang {key}", now)}
    told = {**group(known, now), **queue, "conflicts": conflicts}
    members, slots = list(known.gang.members.values()), list(known.replacements)
    yield from with_lists(told, {"members": map(_member, members), "slots": (_slot(slot, now) for slot in slots)})


def _member(member: Member) -> dict[str, Any]:
    stage = member.stage.name.capitalize()
    return {"name": member.name, "uid": member.uid, "role": member.role, "stage": stage, "node": member.node}


def _slot(slot: ReplacementHold, now: float) -> dict[str, Any]:
    return {
        "name": "" if slot.grown else slot.keeper.ref.name,
        "role": slot.role,
        "node": slot.assignment.node,
        "gpus": sorted({share.index for given in slot.assignment.shares.values() for share in given}),
        "seconds": round(max(0.0, slot.assignment.until - now), 1),
    }


def named(engine: Engine, namespace: str, name: str) -> Generator[bytes, None, PodState | None]:
    """The pod of that name, the latest: an earlier one may still be ending."""
    found: list[PodState] = []
    for number, uid in enumerate(list(engine.pods)):
        pod = engine.pods.get(uid)
        if pod is not None and pod.ref.name == name and pod.ref.namespace == namespace:
            found.append(pod)
        if number % SLICE == 0:
            yield b""
    return max(found, key=lambda pod: pod.since, default=None)


def explanation(engine: Engine, namespace: str, name: str, now: float) -> Told:
    """A pod by name: where it is, or why it waits, and what it costs there and elsewhere; raises Refusal."""
    pod = yield from named(engine, namespace, name)
    if pod is None:
        raise missing(f"{namespace}/{name}: no such pod, or it is over")
    while engine.worth.prepare(pod):
        yield b""
    line = yield from queues.in_line(engine, engine.gangs.roster.of(pod.ref.uid) or pod, now)
    why = {**waiting_pod(engine, pod, now), **line} if pod.state == "waiting" else {}
    return {**placed_pod(engine, pod), **why, "asksGpus": pod.asked is not None, "ranking": _ranking(engine, pod)}


def _ranking(engine: Engine, pod: PodState) -> list[dict[str, Any]]:
    """The best nodes for a pod and its own, with its score on each and the terms of that."""
    return [
        {"node": row.node, "score": row.points, "terms": row.terms, "here": row.here} for row in engine.worth.rows(pod)
    ]
