"""Has those come, or start, for whom all the room is there that is kept for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from extender.engine.books.reservations import Kept, Reservations
from extender.engine.effects import Effect, Wake
from extender.engine.gangs.barrier import Barrier
from extender.engine.gangs.gangs import Gangs
from gangfilter.group import GroupKey

GATHERED_S = 30.0
"""Seconds that what is asked for the members of a gang, one after the other, may take to be enough for its start."""


class Keeping:
    """Looks at what is kept, whenever something happened."""

    def __init__(
        self, reservations: Reservations, gangs: Gangs, barrier: Barrier, counters: Counter[tuple[str, str]]
    ) -> None:
        self._reservations, self._gangs, self._barrier, self._counters = reservations, gangs, barrier, counters

    def look(self, now: float) -> list[Effect]:
        """Keep what is reserved; a single pod is woken once its room is complete, a gang starts with all of it."""
        if not self._reservations:
            return []
        wakes: list[Effect] = []
        together: dict[GroupKey, list[Kept]] = {}
        for kept in self._reservations.keep(now):
            pod = kept.pod.ref
            known = self._gangs.of(pod.uid)
            if known is not None and not self._barrier.single(pod.uid):
                together.setdefault(known.gang.key, []).append(kept)
            elif kept.spot is not None and kept.complete and self._reservations.due(pod.uid, now):
                wakes.append(Wake(pod, kept.spot.node))
        for key, all_of_it in together.items():
            if all(kept.complete for kept in all_of_it):
                self._start(key, all_of_it, now)
        self._counters["wakes", ""] += len(wakes)
        return wakes

    def _start(self, key: GroupKey, all_of_it: Sequence[Kept], now: float) -> None:
        spots = {kept.pod.ref.uid: kept.spot for kept in all_of_it if kept.spot is not None}
        if not self._gangs.may_start(key, now):
            return
        if self._gangs.suffice(key, spots):
            for uid in spots:
                self._reservations.lend(uid)
            self._gangs.start(key, spots, now)
        elif now >= max(kept.complete_at for kept in all_of_it) + GATHERED_S:
            for uid in spots:
                self._reservations.give_up(uid)  # others came or went: it is planned like any other
