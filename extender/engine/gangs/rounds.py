"""Gangs as time passes: a round looks at those that time can move, a part of them at once.

Between two parts the event loop goes on. So a tick costs no more where thousands of gangs wait, and nothing for those
that are done.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from extender.engine.gangs.context import GangContext
from extender.engine.gangs.controller import GangController
from extender.engine.gangs.plan_requests import PlanRequests
from extender.engine.state.roster import GangInfo
from extender.engine.types.subject import of_gang
from gangfilter.group import GroupKey
from gangfilter.members import HOLDING
from gangfilter.table import Phase

PART = 100
"""Looks at once, together some 2 ms. A gang costs one, and one more for each so many members, or so many of them that
hold a place; so many for each member if it goes on to another phase:"""
MEMBERS, HOLDERS, MOVED = 32, 4, 4
NEWS = 4
"""What it costs to take something in, in looks."""


class News(IntEnum):
    """What is to be taken in by every gang. What comes later says all that came before."""

    REPLAYED = 0
    """The cluster is known."""
    LEADER = 1
    """This process may write, or may not any more."""
    STAND_BY = 2
    """It might not meanwhile: what a gang holds is given back first."""


class Rounds:
    """Works through all gangs by parts: the round under way, and the gangs that have yet to take something in."""

    def __init__(self, context: GangContext, requests: PlanRequests, controller: GangController) -> None:
        self._ledger, self._quarantine, self._roster = context.ledger, context.quarantine, context.roster
        self._admission, self._reporter = context.admission, context.reporter
        self._requests, self._controller = requests, controller
        self.waiting = False
        """Gangs wait for room, as far as the last round saw."""
        self.looked = 0
        """How often there may have been room by then: those who wait are in line for a plan with that."""
        self._left: deque[GroupKey] = deque()
        self._under_way = self._waits = False
        self._freed = 0
        """What `looked` will be when the round under way is over."""
        self._news: dict[GroupKey, News] = {}

    # -- what concerns all gangs

    @property
    def leading(self) -> bool:
        """Whether gangs are led here, with all of the cluster known, and every gang has taken that in."""
        return self._roster.leading and self._roster.replayed and not self._news

    def replayed(self, now: float) -> None:
        """All pods and groups were told."""
        if not self._roster.replayed:
            self._roster.replayed = True
            self._tell(News.REPLAYED, now)

    def lead(self, yes: bool, now: float) -> None:
        """Whether this process may write."""
        self._roster.leading = self._roster.keeps_queues = yes
        self._tell(News.LEADER if yes else News.STAND_BY, now)

    def shift(self, by: float) -> None:
        """The wall clock shows so many seconds more than it did: all that was read by it was so much earlier."""
        for known in self._roster.known.values():
            known.gang.shift(by)
            self._controller.note(known)

    def _tell(self, news: News, now: float) -> None:
        """Every gang is to take this in."""
        for key in self._roster.known:
            self._news[key] = max(news, self._news.get(key, news))
        self.work(now)

    # -- time

    def tick(self, now: float) -> None:
        """Begin a round, if none is under way; look again at gangs whose queue may have room for them by now."""
        for key in self._admission.unparked():
            known = self._roster.known.get(key)
            if known is not None:
                known.parked = False
                self._controller.note(known)
        if not self._under_way:
            self._left.extend(self._controller.agenda.due(now))
            self._under_way, self._waits, self._freed = True, False, self._ledger.freed
        self.work(now)

    def work(self, now: float) -> bool:
        """Do a part of what is to be done; returns whether there is more."""
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
        if self._under_way and not self._left:
            self._under_way = False
            self.waiting, self.looked = self._waits, self._freed
        return bool(self._news or self._left)

    def hasten(self, key: GroupKey, now: float) -> None:
        """Have this gang take in what it has not yet."""
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
        self._reporter.news(known, now)
        self._requests.park(known)
        self._controller.note(known)
        self._waits |= known.gang.phase is Phase.WAITING and not known.parked


def _cost(known: GangInfo | None) -> int:
    if known is None:
        return 1
    return 1 + len(known.gang.members) // MEMBERS + known.gang.count(*HOLDING) // HOLDERS
