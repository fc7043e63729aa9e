"""Plans of moves that make room for a pending workload, for the aggregated API. Nothing is moved."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from extender.server import explain
from extender.server.desk import Refusal
from extender.server.visibility.items import Listing, View, whole_page
from extender.wire.visibility import DefragPlanStatus, Item


def plan(view: View, namespace: str, name: str) -> Listing:
    """The plan for a pending pod or gang by name. The query is that of the status port; raises Refusal for another."""
    try:
        text = yield from whole_page(explain.moves(view.engine, namespace, name, view.query))
    except Refusal as refusal:
        if refusal.status != HTTPStatus.NOT_FOUND:
            raise
        return  # there is no such workload
    yield Item(namespace, name, msgspec.json.decode(text, type=DefragPlanStatus))
