"""Gangs as time passes: a round looks at those that time can move, a part of them at once.

Between two parts the event loop goes on. So a tick costs no more where thousands of gangs wait, and nothing for those
that are done.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from extender.engine.gangs.controller import GangController
from extender.engine.gangs.reporter import GangReporter
from extender.engine.state.ledger import Ledger
from extender.engine.state.quarantine import Quarantine
from extender.engine.state.roster import GangInfo, Roster
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
    """The round under way, and the gangs that have yet to take something in."""

    def __init__(
        self, ledger: Ledger, quarantine: Quarantine, roster: Roster, controller: GangController, reporter: GangReporter
    ) -> None:
        self._ledger, self._quarantine, self._roster = ledger, quarantine, roster
        self._controller, self._reporter = controller, reporter
        self.waiting = False
        """Gangs wait for room, as far as the last round saw."""
        self.looked = 0
        """How often there may have been room by then: those who wait are in line for a plan with that."""
        self._left: deque[GroupKey] = deque()
        self._under_way = self._waits = False
        self._freed = 0
        """What `looked` will be when the round under way is over."""
        self._news: dict[GroupKey, News] = {}

    @property
    def settled(self) -> bool:
        """Whether every gang has taken in what there is."""
        return not self._news

    def tell(self, news: News, now: float) -> None:
        """Every gang is to take this in."""
        for key in self._roster.known:
            self._news[key] = max(news, self._news.get(key, news))
        self.work(now)

    def tick(self, now: float) -> None:
        """Begin a round, if none is under way."""
        self._controller.unpark()
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
        self._controller.park(known)
        self._controller.note(known)
        self._waits |= known.gang.phase is Phase.WAITING and not known.parked


def _cost(known: GangInfo | None) -> int:
    if known is None:
        return 1
    return 1 + len(known.gang.members) // MEMBERS + known.gang.count(*HOLDING) // HOLDERS
