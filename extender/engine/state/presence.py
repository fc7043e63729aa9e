"""Which pods there are, where kube-scheduler and our watch of pods tell it at different times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

REMEMBERED = 65_536
"""Pods that ended which are remembered, those that ended last."""
REMEMBER_S = 60.0
"""Seconds for which a pod that ended is remembered, and one that only the scheduler knows is believed in."""


class Presence:
    """Pods that ended while the scheduler may still ask for them, and pods asked for that no watch has shown."""

    def __init__(self) -> None:
        self._gone: OrderedDict[str, float] = OrderedDict()
        """UIDs in order of their end. A dict would look at all that went before to find its first."""
        self._unseen: dict[str, float] = {}
        """UIDs in the order in which they were first asked for."""
        self._listed_at = float("-inf")

    def seen(self, uid: str) -> None:
        """The watch shows it."""
        self._unseen.pop(uid, None)

    def ended(self, uid: str, now: float) -> None:
        """It is over."""
        self._unseen.pop(uid, None)
        self._gone.pop(uid, None)
        self._gone[uid] = now
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def over(self, uid: str) -> bool:
        """Whether it ended lately."""
        return uid in self._gone

    def unseen(self, uid: str, now: float) -> None:
        """The scheduler asks for it, and no watch has shown it."""
        self._unseen.setdefault(uid, now)

    def listed(self, now: float) -> None:
        """A list of all pods was told."""
        self._listed_at = now

    def lost(self, bound: Callable[[str], bool], now: float) -> list[str]:
        """Pods that nobody should believe in any more.

        The watch may be broken: a pod that we bound is believed in until a list that was told later does not show it.
        """
        while self._gone and now - next(iter(self._gone.values())) > REMEMBER_S:
            self._gone.popitem(last=False)
        old = [(uid, since) for uid, since in self._unseen.items() if now - since > REMEMBER_S]
        return [uid for uid, since in old if since < self._listed_at or not bound(uid)]
