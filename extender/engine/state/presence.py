"""Which pods exist, where kube-scheduler and the watch of pods disagree for a moment."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

REMEMBERED = 65_536
"""Ended pods remembered; the oldest are dropped."""
REMEMBER_S = 60.0
"""Seconds for which an ended pod is remembered, and for which a pod is kept that only kube-scheduler has shown."""


class Presence:
    """Pods that ended while kube-scheduler may still ask for them, and pods asked for before the watch shows them."""

    def __init__(self) -> None:
        self._gone: OrderedDict[str, float] = OrderedDict()
        """UIDs in order of their end. In a plain dict, finding the first would pass over all deleted entries."""
        self._unseen: dict[str, float] = {}
        """UIDs in order of the first request for them."""
        self._listed_at = float("-inf")

    def seen(self, uid: str) -> None:
        """The watch shows the pod."""
        self._unseen.pop(uid, None)

    def ended(self, uid: str, now: float) -> None:
        self._unseen.pop(uid, None)
        self._gone.pop(uid, None)
        self._gone[uid] = now
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def over(self, uid: str) -> bool:
        """Whether the pod ended recently."""
        return uid in self._gone

    def unseen(self, uid: str, now: float) -> None:
        """kube-scheduler asks for a pod that the watch has not shown."""
        self._unseen.setdefault(uid, now)

    def listed(self, now: float) -> None:
        """A list of all pods is complete."""
        self._listed_at = now

    def lost(self, bound: Callable[[str], bool], now: float) -> list[str]:
        """Unseen pods that no longer exist.

        The watch may be broken, so a pod that we bound is lost only if a later list does not show it.
        """
        while self._gone and now - next(iter(self._gone.values())) > REMEMBER_S:
            self._gone.popitem(last=False)
        old = [(uid, since) for uid, since in self._unseen.items() if now - since > REMEMBER_S]
        return [uid for uid, since in old if since < self._listed_at or not bound(uid)]
