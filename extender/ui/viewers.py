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
"""Seconds after the last request after which a viewer without an open tab is forgotten."""


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
        self._make, self.most, self._clock = make, most, clock
        self._known: OrderedDict[bytes, tuple[Viewer, float]] = OrderedDict()
        """The one who asked last is the last."""

    def __call__(self, token: str) -> Viewer:
        """The viewer with this token; raises Trouble if there are too many."""
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        self._forget(now, but=key)
        known = self._known.pop(key, None)
        if known is None:
            if len(self._known) >= self.most:
                raise Trouble("too many people look at this page: try again later", HTTPStatus.SERVICE_UNAVAILABLE)
            source = self._make(token)
            known = Viewer(source, Board(source)), now
        self._known[key] = known[0], now
        return known[0]

    def _forget(self, now: float, but: bytes) -> None:
        """Forget those who look no more, with the whole cluster as each saw it."""
        for key, (viewer, asked) in list(self._known.items()):
            if key != but and not viewer.board.watched and now - asked > IDLE_S:
                del self._known[key]
