"""The page of defragmentation plans. It is read-only: users move pods with their own rights."""

from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.planning.defrag_plan import NoPlan
from extender.engine.policies.defrag.defrag import MOST_MOVES
from extender.server import explain
from extender.server.desk import Pieces, Refusal, missing
from extender.server.lists import json_object
from extender.wire.listings import Plan
from gangfilter.group import GroupKey

MOST_ALLOWED = 64
MOST_KEPT = 256
"""Pods that the caller excludes from moving."""
BUSY = "another plan of moves is being made: try again"


def page(engine: Engine, namespace: str, name: str, query: str) -> Pieces:
    """The moves that make room for a pending pod or gang, without pods to `keep`; raises Refusal."""
    most, keep = _parameters(query)
    pod = yield from explain.named(engine, namespace, name)
    yield b""
    request = engine.defrag(pod, GroupKey(namespace, name), most, keep)
    if request is None:
        raise missing(f"{namespace}/{name}: no such pod or gang")
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
