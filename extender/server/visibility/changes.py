"""Which nodes have changed since a caller looked last: who looks every few seconds reads only those.

A caller gets a token with each list, and names it with the next request. Nothing is kept for a caller.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from extender.engine.state.node_state import NodeState
from extender.server.desk import SLICE
from extender.server.visibility import items
from extender.server.visibility.items import Sight
from protos.contract.reason import Reason

MOST_GONE = 1000
"""Deleted nodes that are remembered. A caller whose token is older than the first of them reads all nodes."""
FRESH_S = 1.0
"""A look serves all callers for so long."""
Stamp = tuple[int, tuple[Reason, ...], int]


def stamp(state: NodeState, queues: int) -> Stamp:
    """Differs whenever something differs that is shown of the node. `queues`: counts changes of the queues."""
    return state.version, state.told, queues


class Since(NamedTuple):
    """The nodes to show, None for all, the names of those that are gone, and the token of this answer."""

    changed: frozenset[str] | None
    gone: tuple[str, ...]
    token: str


class Changes:
    """The order in which nodes changed, as far as looks have shown it. Each change has a number."""

    def __init__(self) -> None:
        self._life, self._number = secrets.token_hex(4), 0
        self._nodes: dict[str, tuple[Stamp, int]] = {}
        """Stamp and number of each node; the last changed is the last."""
        self._gone: dict[str, int] = {}
        self._looked = float("-inf")
        self._forgotten = 0
        """The number of the last change that is not remembered."""

    def look(self, nodes: Mapping[str, NodeState], queues: int, now: float) -> Generator[None, None, None]:
        """Compare all nodes with the last look, unless that was just now. Other work may run at each pause."""
        if now - self._looked < FRESH_S:
            return
        self._looked = now
        for count, name in enumerate(dict.fromkeys([*nodes, *self._nodes])):
            state, known = nodes.get(name), self._nodes.get(name)
            if state is None or known is None or known[0] != stamp(state, queues):
                self._see(name, state, queues)
            if count % SLICE == 0:
                yield

    def _see(self, name: str, state: NodeState | None, queues: int) -> None:
        if state is None or not items.tells(state):
            self._leave(name)
            return
        self._number += 1
        self._nodes.pop(name, None)
        self._gone.pop(name, None)
        self._nodes[name] = stamp(state, queues), self._number

    def _leave(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._number += 1
            self._gone[name] = self._number
            if len(self._gone) > MOST_GONE:
                self._forgotten = self._gone.pop(next(iter(self._gone)))

    def since(self, tokens: Iterable[str], sight: Sight) -> Since:
        """The changes since the token that this replica gave to a caller who saw as much; all nodes without such."""
        sees = hashlib.sha256(repr(sight.namespaces).encode()).hexdigest()[:8]
        token = f"{self._life}.{sees}.{self._number}"
        for given in tokens:
            life, _, rest = given.partition(".")
            seen, _, number = rest.partition(".")
            if (life, seen) == (self._life, sees) and number.isascii() and number.isdecimal():
                last = int(number)
                if self._forgotten <= last <= self._number:
                    return Since(self._changed(last), self._left(last), token)
        return Since(None, (), token)

    def _changed(self, last: int) -> frozenset[str]:
        latest_first = reversed(self._nodes)
        return frozenset(itertools.takewhile(lambda name: self._nodes[name][1] > last, latest_first))

    def _left(self, last: int) -> tuple[str, ...]:
        return tuple(itertools.takewhile(lambda name: self._gone[name] > last, reversed(self._gone)))
