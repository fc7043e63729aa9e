"""Gangs as time passes: a round looks at the gangs that time can move, in parts.

The event loop goes on between two parts. So a tick costs no more with thousands of pending gangs, and nothing for
finished ones.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.state.roster import GangInfo
from extender.engine.types.subject import of_gang
from gangfilter.group import GroupKey
from gangfilter.members import HOLDING
from gangfilter.table import Phase

PART = 100
"""Looks in one part, together some 2 ms. A gang costs one look."""
MEMBERS, HOLDERS, MOVED = 32, 4, 4
"""Members, and members that hold a place, that cost one more look; looks for each member if the phase changes."""
NEWS = 4
"""Looks that it costs a gang to take in news."""


class News(IntEnum):
    """News for every gang. Each item includes those before it."""

    REPLAYED = 0
    """The whole cluster is known."""
    LEADER = 1
    """This process leads."""
    STAND_BY = 2
    """This process did not lead for a time: gangs give back first what they hold."""


class Rounds:
    """Works through all gangs in parts: the current round, and the gangs that have yet to take in news."""

    def __init__(self, context: GangContext, controller: GangController) -> None:
        self._ledger, self._quarantine, self._roster = context.ledger, context.quarantine, context.roster
        self._admission, self._reporter = context.admission, context.reporter
        self._planner, self._controller = context.planner, controller
        self.waiting = False
        """The last round saw gangs that wait for capacity."""
        self.looked = 0
        """`Ledger.freed` at the last full round: with that capacity all pending gangs have asked for a plan."""
        self._left: deque[GroupKey] = deque()
        self._waits = False
        self._freed = 0
        """`looked` after the current round."""
        self._news: dict[GroupKey, News] = {}

    # -- news for all gangs

    @property
    def leading(self) -> bool:
        """Whether this process leads and knows the whole cluster, and every gang has taken that in."""
        return self._roster.leading and self._roster.replayed and not self._news

    def replayed(self, now: float) -> None:
        """All pods and PodGroups were listed."""
        if not self._roster.replayed:
            self._roster.replayed = True
            self._announce(News.REPLAYED, now)

    def lead(self, yes: bool, now: float) -> None:
        """Whether this process leads."""
        self._roster.leading = self._roster.keeps_queues = yes
        self._announce(News.LEADER if yes else News.STAND_BY, now)

    def shift(self, by: float) -> None:
        """The wall clock was set: all times read by it were `by` seconds earlier than they seemed."""
        for known in self._roster.known.values():
            known.gang.shift(by)
            self._controller.note(known)

    def _announce(self, news: News, now: float) -> None:
        for key in self._roster.known:
            self._news[key] = max(news, self._news.get(key, news))
        self.work(now)

    # -- time

    def tick(self, now: float) -> None:
        """Begin a round, if there is none; include parked gangs that their queue may admit now."""
        for key in self._admission.unparked():
            known = self._roster.known.get(key)
            if known is not None:
                known.parked = False
                self._controller.note(known)
        if not self._left:
            self._left.extend(self._controller.agenda.due(now))
            self._waits, self._freed = False, self._ledger.freed
        self.work(now)

    def work(self, now: float) -> bool:
        """Do one part; returns whether there is more."""
        budget = PART
        while budget > 0 and self._news:
            known = self._roster.known.get(key := next(iter(self._news)))
            self.hasten(key, now)
            budget -= NEWS * _cost(known)
        while budget > 0 and self._left:
            known = self._roster.known.get(self._left.popleft())
            if known is not None and not known.parked:
                before = known.gang.phase
                with self._quarantine.over(of_gang(known.gang.key), "gang"):
                    self._look(known, now)
                budget -= MOVED * len(known.gang.members) if known.gang.phase is not before else 0
            budget -= _cost(known)
        if not self._left:
            self.waiting, self.looked = self._waits, self._freed
        return bool(self._news or self._left)

    def hasten(self, key: GroupKey, now: float) -> None:
        """Have this gang take in its news now."""
        news, known = self._news.pop(key, None), self._roster.known.get(key)
        if news is not None and known is not None:
            with self._quarantine.over(of_gang(key), "gang"):
                self._take_in(news, known, now)

    def _take_in(self, news: News, known: GangInfo, now: float) -> None:
        if news is News.STAND_BY:
            self._controller.stand_by(known, now)
        if news is not News.REPLAYED:
            known.told, known.planned, known.reported, known.warned = None, None, (None, 0.0), ()
            known.capped, known.offering = None, True
            self._reporter.warn(known, now)
        self._controller.settle(known, now)

    def _look(self, known: GangInfo, now: float) -> None:
        self._controller.tick(known, now)
        if known.reason is not None and now >= self._reporter.due(known):
            self._reporter.report(known, known.reason, now)
        self._planner.park(known)
        self._controller.note(known)
        self._waits |= known.gang.phase is Phase.WAITING and not known.parked


def _cost(known: GangInfo | None) -> int:
    if known is None:
        return 1
    return 1 + len(known.gang.members) // MEMBERS + known.gang.count(*HOLDING) // HOLDERS
