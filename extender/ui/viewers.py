"""The viewers of a page behind a login proxy: each has a sight of their own, with their own rights."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from extender.ui.board import Board
from extender.ui.sources import Source, Trouble

MOST = 64
"""Viewers at the same time. A token that was replaced is a viewer of its own until it is forgotten."""
IDLE_S = 60.0
"""Seconds after the last request after which a viewer without an open tab may be forgotten."""


class Viewer(NamedTuple):
    """What one viewer sees, and with whose rights."""

    source: Source
    board: Board


class Viewers:
    """The viewers by their tokens, of which only digests are kept here."""

    def __init__(
        self, make: Callable[[str], Source], most: int = MOST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`make`: reads with a token."""
        self._make, self._most, self._clock = make, most, clock
        self._known: OrderedDict[bytes, tuple[Viewer, float]] = OrderedDict()
        """The one who asked last is the last."""

    def __call__(self, token: str) -> Viewer:
        """The viewer with this token; raises Trouble if there are too many."""
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        known = self._known.pop(key, None)
        if known is None:
            self._forget(now)
            source = self._make(token)
            known = Viewer(source, Board(source)), now
        self._known[key] = known[0], now
        return known[0]

    def _forget(self, now: float) -> None:
        """Make room for one more."""
        for key, (viewer, asked) in list(self._known.items()):
            if len(self._known) < self._most:
                return
            if not viewer.board.watched and now - asked > IDLE_S:
                del self._known[key]
        if len(self._known) >= self._most:
            raise Trouble("too many people look at this page: try again later", HTTPStatus.SERVICE_UNAVAILABLE)
