"""The pages of one pod or gang: where it is, or why it is pending, and the moves that make room for it."""

from collections.abc import Generator
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.gangs.planner import smallest_start
from extender.engine.planning.defrag_plan import NoPlan
from extender.engine.policies.defrag.defrag import MOST_MOVES
from extender.engine.queueing.usage import Takes
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import GangInfo, ReplacementHold
from extender.server import inspect, node_counts, verdicts
from extender.server.desk import Pieces, Refusal, current, json_object, wanted
from extender.wire import answers
from extender.wire.answers import NodeCount, Pod, Rank, Slot
from extender.wire.listings import Plan
from gangfilter.group import GroupKey
from gangfilter.members import Member
from gangfilter.table import Phase
from protos.contract.queue import shown
from protos.contract.reason import listed

LINE_SLICE = 100
"""Pending workloads looked at between two pieces."""
SHOWN_NAMES = 5
"""Names of similar gangs that the answer for an unknown gang shows."""
MOST_ALLOWED = 64
"""Moves of a plan."""
MOST_KEPT = 256
"""Pods that the caller excludes from moving."""


def _named(engine: Engine, namespace: str, name: str) -> Generator[bytes, None, PodState | None]:
    """The newest pod of this name: an older one may still be terminating."""
    pods = yield from wanted(current(engine.pods), lambda pod: pod.ref.name == name and pod.ref.namespace == namespace)
    return max(pods, key=lambda pod: pod.since, default=None)


def pod(engine: Engine, namespace: str, name: str, now: float, *, scores: bool = False) -> Pieces:
    """A pod by name: its place or why it is pending; with `scores`, its scores on nodes; raises Refusal."""
    state = yield from _named(engine, namespace, name)
    if state is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"{namespace}/{name}: no such pod, or it is over")
    fields = {**_fields(inspect.placed_pod(engine, state)), "asksGpus": state.asked is not None}
    fields["conflicts"] = engine.gangs.roster.conflicts(state.ref.uid)
    counts: list[NodeCount] = []
    if state.state == "waiting":
        counts = yield from node_counts.by_reason(engine, state)
        line = yield from _place_in_line(engine, engine.gangs.roster.of(state.ref.uid) or state, now)
        fields |= {**_fields(inspect.waiting_pod(engine, state, now)), **line, **_queue_of_pod(engine, state)}
    if scores and not _barred(engine, state):
        fields["ranking"] = yield from _ranking(engine, state)
    told = msgspec.convert({**fields, "nodes": counts}, Pod)
    verdict = verdicts.of_pod(told, state, fits_nowhere=bool(counts) and all(count.never for count in counts))
    yield msgspec.json.encode({**fields, "nodes": counts, "verdict": verdict})


def _barred(engine: Engine, pod: PodState) -> bool:
    """Whether the pod is pending in a queue that no pod starts in: then a score would promise too much."""
    local_queue = engine.tenancy.queues.of(pod.ref.uid) if pod.state == "waiting" else None
    return local_queue is not None and engine.tenancy.admission.quota.barred(local_queue) is not None


def _ranking(engine: Engine, pod: PodState) -> Generator[bytes, None, list[Rank]]:
    while engine.worth.prepare(pod):
        yield b""
    rows = engine.worth.rows(pod)
    return [Rank(node=row.node, score=row.points, terms=row.terms, here=row.here) for row in rows]


def _queue_of_pod(engine: Engine, pod: PodState) -> dict[str, Any]:
    queues = engine.tenancy.queues
    local_queue = queues.of(pod.ref.uid)
    if local_queue is None:
        return {}
    return {"pendingPods": queues.at(local_queue).waiting, "takes": _shown(queues.takes(pod.ref.uid))}


def _shown(takes: Takes) -> dict[str, str]:
    return {resource: shown(resource, amount) for resource, amount in sorted(takes) if amount}


def _fields(shape: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(shape)
    return fields


def group(engine: Engine, key: GroupKey, now: float) -> Pieces:
    """A gang by name, with its members; raises Refusal."""
    info = engine.gangs.roster.known.get(key)
    if info is None:
        raise Refusal(HTTPStatus.NOT_FOUND, (yield from _unknown(engine, key)))
    line = yield from _place_in_line(engine, info, now)
    takes = yield from _taken_by_gang(engine, info)
    yield b""
    gang = inspect.gang(info, now)
    fields = {
        **_fields(gang),
        "verdict": verdicts.of_gang(gang),
        **_queue_of_gang(engine, info),
        **takes,
        **line,
        "earliest": inspect.earliest(engine, f"gang {key}", now),
        "provisioning": engine.provisioning.told(key),
        "conflicts": list(info.gang.terms.conflicts),
    }
    members, holds = list(info.gang.members.values()), list(info.replacements)
    yield from json_object(fields, {"members": map(_member, members), "slots": (_slot(hold, now) for hold in holds)})


def _unknown(engine: Engine, key: GroupKey) -> Generator[bytes, None, str]:
    """The sentence for an unknown gang. It names gangs of the namespace whose names begin alike."""
    start, known = key.name.split("-")[0], list(engine.gangs.roster.known)
    alike = yield from wanted(known, lambda other: other.namespace == key.namespace and other.name.startswith(start))
    if not alike:
        return f"{key}: no such gang"
    names = listed(sorted(other.name for other in alike), SHOWN_NAMES)
    return f"{key}: no such gang; there are {names} (Volcano's Jobs name theirs NAME-UID)"


def _member(member: Member) -> answers.Member:
    stage = member.stage.name.capitalize()
    return answers.Member(name=member.name, uid=member.uid, role=member.role, stage=stage, node=member.node)


def _slot(hold: ReplacementHold, now: float) -> Slot:
    return Slot(
        name="" if hold.grown else hold.keeper.ref.name,
        role=hold.role,
        node=hold.assignment.node,
        gpus=tuple(sorted({share.index for shares in hold.assignment.shares.values() for share in shares})),
        seconds=round(max(0.0, hold.assignment.until - now), 1),
    )


def _queue_of_gang(engine: Engine, info: GangInfo) -> dict[str, Any]:
    """The queue of a gang. If the gang waits for that queue, also the reason with its present numbers."""
    local_queue = engine.tenancy.admission.local_queue(info.gang)
    queue = engine.tenancy.queues.at(local_queue)
    fields: dict[str, Any] = {"queue": queue.name, "pendingPods": queue.waiting}
    if info.gang.phase is Phase.WAITING:
        withheld = engine.gangs.planner.withheld(info.gang)
        fields |= msgspec.structs.asdict(withheld) if withheld is not None else {}
    return fields


def _taken_by_gang(engine: Engine, info: GangInfo) -> Generator[bytes, None, dict[str, Any]]:
    """What the smallest start of a waiting gang would use of its queue."""
    if info.gang.phase is not Phase.WAITING:
        return {}
    seats = yield from wanted(engine.gangs.planner.seats(info.gang), lambda _: True)
    smallest, _ = smallest_start(info.gang, seats)
    yield b""
    return {"takes": _shown(engine.tenancy.admission.quota.together(seat.uid for seat in smallest))}


def _place_in_line(engine: Engine, workload: GangInfo | PodState, now: float) -> Generator[bytes, None, dict[str, Any]]:
    """The place of a gang or single pod among the pending workloads of its queue, and when the first of these starts.

    Empty for a workload that is not pending, or has no queue.
    """
    heads = engine.backfill.heads
    mine = heads.waiting(workload)
    queue = heads.queue(mine) if mine is not None else None
    if mine is None or queue is None:
        return {}
    before = waiting = 0
    for number, other in enumerate(heads.everybody()):
        if number % LINE_SLICE == LINE_SLICE - 1:
            yield b""
        if other is not None and heads.queue(other) is queue:
            before, waiting = before + (other.turn < mine.turn), waiting + 1
    return {"place": before + 1, "inLine": waiting, "first": inspect.start(engine, engine.backfill.first(queue), now)}


def moves(engine: Engine, namespace: str, name: str, query: str) -> Pieces:
    """The moves that make room for a pending pod or gang, without pods to `keep`; raises Refusal."""
    most, keep = _parameters(query)
    pod = yield from _named(engine, namespace, name)
    yield b""
    request = engine.defrag(pod, GroupKey(namespace, name), most, keep)
    if request is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"{namespace}/{name}: no such pod or gang")
    if isinstance(request, NoPlan):
        yield msgspec.json.encode(Plan(who=f"{namespace}/{name}", fits=False, verdict=request.why))
        return
    while not request.advance():
        yield b""
    yield b""
    yield from json_object(request.told(engine.nodes), {"rooms": request.rooms(engine.nodes)})


def _parameters(query: str) -> tuple[int, tuple[str, ...]]:
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_KEPT + 1)
    except ValueError as error:
        expected = f"expected max-moves and at most {MOST_KEPT} times keep"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"the query has too much: {expected}") from error
    most = given.get("max-moves", [f"{MOST_MOVES}"])[-1]
    if not (most.isascii() and most.isdecimal() and len(most) <= 4 and int(most) <= MOST_ALLOWED):
        sentence = f"max-moves is {most[:20]!r}: expected a number from 0 to {MOST_ALLOWED}"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)
    return int(most), tuple(given.get("keep", ()))
