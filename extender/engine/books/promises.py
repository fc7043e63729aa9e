"""What the annotations of pods say is to be kept, and for which pods.

One pod's annotation may name rooms for others of its namespace, and several may name the same: then a room is asked for
as long as one of them is there.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from protos.contract import codec, reservation
from protos.contract.objects import Pod, epoch_seconds
from protos.contract.reservation import Reservation, Room


class Promise(msgspec.Struct, frozen=True, eq=False):
    """What one annotation says."""

    namespace: str
    text: str
    said: Reservation | None
    """None: it cannot be read, or is over."""
    until: float

    @property
    def preempting(self) -> bool:
        return self.said is not None and bool(self.said.preempting)

    @property
    def rooms(self) -> dict[str, Room]:
        return self.said.rooms if self.said is not None else {}


class Promises:
    """All of them, by the UIDs of the pods on which they stand."""

    def __init__(self, most_s: float, wall: float) -> None:
        """None lasts longer than `most_s`; `wall`: the wall clock (s since 1970) when the monotonic one showed zero."""
        self._most_s, self._wall = most_s, wall
        self._on: dict[str, Promise] = {}
        self._for: dict[str, dict[str, None]] = {}
        """On which pods there is one for a pod, by its UID."""
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
        return next((each for each in found if each.namespace == namespace), None)

    def read(self, pod: Pod, text: str | None, now: float) -> tuple[Collection[str], str]:
        """Take in what stands on a pod; returns for whom (UIDs) that is news, and why it cannot be read, or ""."""
        uid = pod.metadata.uid
        known = self._on.get(uid)
        if text == (known.text if known is not None else None):
            return (), ""
        news = self.forget(uid)
        if text is None:
            return news, ""
        why = ""
        try:
            said = reservation.decode(text)
        except codec.ContractError as error:
            said, why = None, str(error)
        most = max(now + self._most_s, self._allowed.get(uid, 0.0))
        until = min(epoch_seconds(said.until) - self._wall, most) if said is not None else now
        self._on[uid] = made = Promise(pod.metadata.namespace, text, said if until > now else None, until)
        for each in made.rooms:
            self._for.setdefault(each, {})[uid] = None
        return {**dict.fromkeys(news), **dict.fromkeys(made.rooms)}, why

    def forget(self, uid: str) -> Collection[str]:
        """Nothing stands on the pod any more; returns for whom (UIDs) that is news."""
        found = self._on.pop(uid, None)
        rooms = found.rooms if found is not None else {}
        for each in rooms:
            del self._for[each][uid]
            if not self._for[each]:
                del self._for[each]
        return rooms
