"""What callers of the aggregated API see of nodes does not change without the stamp by which they ask for changes."""

from __future__ import annotations

from extender.engine.cycle.engine import Engine
from extender.server import places
from extender.server.visibility.changes import Stamp, stamp
from extender.wire.answers import NodePage


class Shown:
    """Remembers what was shown of each node."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._known: dict[str, tuple[Stamp, NodePage]] = {}

    def look(self, engine: Engine) -> None:
        """Each node that is shown otherwise than before has another stamp."""
        if engine is not self._engine:  # another process
            self._engine, self._known = engine, {}
        queues = engine.tenancy.queues.epoch
        seen = {name: (stamp(state, queues), places.page(engine, state)) for name, state in engine.nodes.items()}
        for name in seen.keys() & self._known.keys():
            (now, page), (before, other) = seen[name], self._known[name]
            assert page == other or now != before, (name, page, other)
        self._known = seen
