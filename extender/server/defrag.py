"""Which moves would make room for somebody, as JSON. Read only: who moves pods does that with rights of their own."""

from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec

from extender.engine.cycle.engine import Engine
from extender.engine.planning.defrag_plan import NoPlan
from extender.engine.policies.defrag.defrag import MOST_MOVES
from extender.server import explain
from extender.server.desk import Pieces, Refusal, missing
from extender.server.lists import with_lists
from extender.wire.listings import Plan
from gangfilter.group import GroupKey

MOST_ALLOWED = 64
MOST_KEPT = 256
"""Pods that are not to be moved."""
BUSY = "moves are being planned for somebody else: try again"


def page(engine: Engine, namespace: str, name: str, query: str) -> Pieces:
    """Which pods to move where, but those to `keep`, so that a pod or gang that waits fits; raises Refusal."""
    most, keep = _asked(query)
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
    yield from with_lists(request.told(engine.nodes), {"rooms": request.rooms(engine.nodes)})


def _asked(query: str) -> tuple[int, tuple[str, ...]]:
    try:
        asked = parse_qs(query, keep_blank_values=True, max_num_fields=MOST_KEPT + 1)
    except ValueError as error:
        expected = f"expected max-moves and at most {MOST_KEPT} times keep"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, f"the query has too much: {expected}") from error
    most = asked.get("max-moves", [f"{MOST_MOVES}"])[-1]
    if not (most.isascii() and most.isdecimal() and len(most) <= 4 and int(most) <= MOST_ALLOWED):
        sentence = f"max-moves is {most[:20]!r}: expected a number from 0 to {MOST_ALLOWED}"
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)
    return int(most), tuple(asked.get("keep", ()))
