"""Which moves would make room for somebody, as JSON. Read only: who moves pods does that with rights of their own.

A plan is made in slices beside all decisions, one plan at a time.
"""

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Response

from extender.engine.moves.defrag import MOST_MOVES
from extender.engine.moves.relief import Hopeless
from extender.server.core import Core

MOST_ALLOWED = 64


def add_page(app: FastAPI, core: Core) -> None:
    """Add the page to the application of the status port."""
    planning = asyncio.Lock()

    @app.get("/defrag/{namespace}/{name}")
    async def defrag(
        namespace: str,
        name: str,
        most: Annotated[int, Query(alias="max-moves", ge=0, le=MOST_ALLOWED)] = MOST_MOVES,
        keep: Annotated[tuple[str, ...], Query()] = (),
    ) -> Response:
        """Which pods to move where, but those to `keep`, so that a pod or gang that waits fits."""
        if planning.locked():
            return Response("moves are being planned for somebody else: try again", 503, media_type="text/plain")
        async with planning:
            found = await _plan(core, namespace, name, most, keep)
        if found is None:
            return Response(f"{namespace}/{name}: no such pod or gang", 404, media_type="text/plain")
        return Response(msgspec.json.encode(found), media_type="application/json")


async def _plan(core: Core, namespace: str, name: str, most: int, keep: tuple[str, ...]) -> dict[str, Any] | None:
    errand = core.engine.defrag(namespace, name, most, keep)
    if errand is None:
        return None
    if isinstance(errand, Hopeless):
        return {"for": f"{namespace}/{name}", "fits": False, "verdict": errand.why, "moves": [], "rooms": []}
    while not errand.advance():  # noqa: ASYNC110  # nobody tells: the work is done here
        await asyncio.sleep(0)
    return errand.told(core.engine.nodes)
