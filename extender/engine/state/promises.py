"""What the annotations of pods say is to be kept, and for which pods.

One pod's annotation may name rooms for others of its namespace, and several may name the same: then a room is asked for
as long as one of them is there. It counts who wrote them: what nobody wrote whom we believe keeps nothing.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from extender.engine.types.wall import Wall
from protos.contract import bounds, codec, names, reservation
from protos.contract.objects import Pod
from protos.contract.reason import Reason
from protos.contract.reservation import Reservation, Room

CANNOT = f"the reservation of {names.RESERVATION} cannot be made"


FORGED = "only the extender and `gangshare defrag --apply` may write it, through pods/status"


class Written(msgspec.Struct, frozen=True, eq=False):
    """One annotation."""

    namespace: str
    text: str
    by: str
    """The manager who wrote it, "" if it is believed of nobody."""
    most: float
    """It holds no longer than until then, whatever it says."""


class Promise(msgspec.Struct, frozen=True, eq=False):
    """What one annotation says."""

    written: Written
    said: Reservation | None
    """None: it is not believed, cannot be read, or is over."""
    until: float

    @property
    def text(self) -> str:
        return self.written.text

    @property
    def by(self) -> str:
        return self.written.by

    @property
    def preempting(self) -> bool:
        return self.said is not None and bool(self.said.preempting) and self.by == names.EXTENDER

    @property
    def rooms(self) -> dict[str, Room]:
        return self.said.rooms if self.said is not None else {}


class Promises:
    """All of them, by the UIDs of the pods on which they stand."""

    def __init__(self, most_s: float, wall: Wall) -> None:
        """None lasts longer than `most_s`."""
        self._most_s, self._wall = most_s, wall
        self._on: dict[str, Promise] = {}
        self._for: dict[str, dict[str, None]] = {}
        """On which pods there is one for a pod, by its UID."""
        self._rooms = 0
        """Named in all of them."""
        self._allowed: dict[str, float] = {}
        """Until when at most, where we wrote it ourselves."""

    def allow(self, uid: str, until: float) -> None:
        """What stands on this pod may be kept until then."""
        self._allowed[uid] = until

    def on(self, uid: str) -> str:
        """What stands on this pod, "" if nothing does."""
        found = self._on.get(uid)
        return found.text if found is not None else ""

    def of(self, uid: str, namespace: str) -> Promise | None:
        """One in which there is a room for this pod."""
        found = (self._on[by] for by in self._for.get(uid, ()))
        return next((each for each in found if each.written.namespace == namespace), None)

    def read(self, pod: Pod, text: str | None, by: str, now: float) -> tuple[Collection[str], Reason | None]:
        """Take in what this manager wrote on a pod; returns for whom (UIDs) that is news, and why nothing is kept."""
        uid = pod.metadata.uid
        known = self._on.get(uid)
        if (text, by) == ((known.text, known.by) if known is not None else (None, by)):
            return (), None
        news = self._take_back(uid)
        if text is None:
            return news, None
        most = max(now + self._most_s, self._allowed.get(uid, 0.0))
        rooms, why = self._take(uid, Written(pod.metadata.namespace, text, by, most), now)
        return {**dict.fromkeys(news), **dict.fromkeys(rooms)}, why

    def read_anew(self, now: float) -> Collection[str]:
        """The wall clock was set; returns for whom (UIDs) that is news.

        What this process wrote itself ends when that was meant to.
        """
        news: dict[str, None] = {}
        for uid, known in list(self._on.items()):
            if known.by != names.EXTENDER or uid not in self._allowed:
                news |= dict.fromkeys(self._take_back(uid))
                rooms, _ = self._take(uid, known.written, now)
                news |= dict.fromkeys(rooms)
        return news

    def _take(self, uid: str, written: Written, now: float) -> tuple[Collection[str], Reason | None]:
        said, why = self._said(written.text, written.by)
        until = min(self._wall.moment(said.until), written.most) if said is not None else now
        self._on[uid] = made = Promise(written, said if until > now else None, until)
        self._rooms += len(made.rooms)
        for each in made.rooms:
            self._for.setdefault(each, {})[uid] = None
        return made.rooms, why

    def _said(self, text: str, by: str) -> tuple[Reservation | None, Reason | None]:
        if not by:
            return None, Reason("ReservationForged", CANNOT, FORGED)
        try:
            said = reservation.decode(text)
        except codec.ContractError as error:
            return None, Reason("ReservationMalformed", CANNOT, str(error))
        rooms = self._rooms + (len(said.rooms) if said is not None else 0)
        if rooms > bounds.ROOMS_IN_SUM.most:
            return None, Reason("ReservationMalformed", CANNOT, bounds.ROOMS_IN_SUM.exceeded(rooms))
        return said, None

    def forget(self, uid: str) -> Collection[str]:
        """The pod is over; returns for whom (UIDs) that is news."""
        self._allowed.pop(uid, None)
        return self._take_back(uid)

    def _take_back(self, uid: str) -> Collection[str]:
        """Nothing stands on the pod any more."""
        found = self._on.pop(uid, None)
        rooms = found.rooms if found is not None else {}
        self._rooms -= len(rooms)
        for each in rooms:
            del self._for[each][uid]
            if not self._for[each]:
                del self._for[each]
        return rooms
