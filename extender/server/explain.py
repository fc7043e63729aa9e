"""One node, pod or gang for people, as JSON: where it is or why it waits. Told in pieces, as `inspect` is."""

from collections.abc import Generator
from typing import Any

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import ReplacementHold
from extender.server import inspect, queues
from extender.server.desk import Pieces, missing
from extender.server.lists import with_lists
from extender.wire import answers
from extender.wire.answers import Rank, Slot
from gangfilter.group import GroupKey
from gangfilter.members import Member

SLICE = 200
"""Pods looked at between two pieces, where little is done for each."""
SHOWN_NAMES = 5
"""Names of gangs told where there is none of the name asked for."""


def node(engine: Engine, name: str) -> Pieces:
    """One node by name; raises Refusal."""
    found = engine.nodes.get(name)
    if found is None:
        raise missing(f"{name}: no such node")
    yield b""
    yield msgspec.json.encode(inspect.node(engine, found))


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


def pod(engine: Engine, namespace: str, name: str, now: float) -> Pieces:
    """A pod by name: where it is, or why it waits, and what it costs there and elsewhere; raises Refusal."""
    found = yield from named(engine, namespace, name)
    if found is None:
        raise missing(f"{namespace}/{name}: no such pod, or it is over")
    while engine.worth.prepare(found):
        yield b""
    line = yield from queues.in_line(engine, engine.gangs.roster.of(found.ref.uid) or found, now)
    told = _fields(inspect.placed_pod(engine, found))
    if found.state == "waiting":
        told |= {**_fields(inspect.waiting_pod(engine, found, now)), **line}
    ranking = [Rank(node=at.node, score=at.points, terms=at.terms, here=at.here) for at in engine.worth.rows(found)]
    yield msgspec.json.encode({**told, "asksGpus": found.asked is not None, "ranking": ranking})


def _fields(told: msgspec.Struct) -> dict[str, Any]:
    """By key, for an answer that has those of several."""
    found: dict[str, Any] = msgspec.to_builtins(told)
    return found


def group(engine: Engine, key: GroupKey, now: float) -> Pieces:
    """A gang by name, with its members; raises Refusal."""
    known = engine.gangs.roster.known.get(key)
    if known is None:
        raise missing((yield from _alike(engine, key)))
    line = yield from queues.in_line(engine, known, now)
    earliest = inspect.earliest(engine, f"gang {key}", now)
    queue = {**queues.of_group(engine, known), **line, "earliest": earliest}
    told = {**_fields(inspect.group(known, now)), **queue, "conflicts": list(known.gang.terms.conflicts)}
    members, slots = list(known.gang.members.values()), list(known.replacements)
    lists = {"members": map(_member, members), "slots": (_slot(slot, now) for slot in slots)}
    yield from with_lists(told, lists)


def _alike(engine: Engine, key: GroupKey) -> Generator[bytes, None, str]:
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


def _member(member: Member) -> answers.Member:
    stage = member.stage.name.capitalize()
    return answers.Member(name=member.name, uid=member.uid, role=member.role, stage=stage, node=member.node)


def _slot(slot: ReplacementHold, now: float) -> Slot:
    return Slot(
        name="" if slot.grown else slot.keeper.ref.name,
        role=slot.role,
        node=slot.assignment.node,
        gpus=tuple(sorted({share.index for given in slot.assignment.shares.values() for share in given})),
        seconds=round(max(0.0, slot.assignment.until - now), 1),
    )
