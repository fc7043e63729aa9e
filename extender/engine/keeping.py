"""Has those come, or start, for whom all the room is there that is kept for them."""

from __future__ import annotations

from collections import Counter

from extender.engine.barrier import Barrier
from extender.engine.effects import Effect, Wake
from extender.engine.gangs import Gangs
from extender.engine.reservations import Reservations
from extender.engine.seats import Spot
from gangfilter.group import GroupKey


class Keeping:
    """Looks at what is kept, whenever something happened."""

    def __init__(
        self, reservations: Reservations, gangs: Gangs, barrier: Barrier, counters: Counter[tuple[str, str]]
    ) -> None:
        self._reservations, self._gangs, self._barrier, self._counters = reservations, gangs, barrier, counters

    def look(self, now: float) -> list[Effect]:
        """Keep what is reserved; a single pod is woken once its room is complete, a gang starts with all of it."""
        wakes: list[Effect] = []
        together: dict[GroupKey, dict[str, Spot]] = {}
        for pod, spot in self._reservations.keep(now) if self._reservations else ():
            known = self._gangs.of(pod.ref.uid)
            if known is not None and not self._barrier.single(pod.ref.uid):
                together.setdefault(known.gang.key, {})[pod.ref.uid] = spot
            elif self._reservations.due(pod.ref.uid, now):
                wakes.append(Wake(pod.ref, spot.node))
        for key, spots in together.items():
            if self._gangs.may_start(key, spots, now):
                for uid in spots:
                    self._reservations.lend(uid)
                self._gangs.start(key, spots, now)
        self._counters["wakes", ""] += len(wakes)
        return wakes
