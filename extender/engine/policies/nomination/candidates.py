"""The pending single pods that kube-scheduler has not asked about yet, in the order in which it will."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count, islice

from sortedcontainers import SortedDict

from extender.engine.policies.context import PolicyContext
from extender.engine.state.pod_state import PodState

Place = tuple[int, float, int]
"""Minus the priority, when the pod was created or first seen, and a number that grows with each pod."""


class Candidates:
    """Pods whose nodes may be decided ahead: nothing but GPUs, CPU and labels decides where they may go."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context
        self._numbers = count()
        self._line: SortedDict[Place, PodState] = SortedDict()
        self._places: dict[str, Place] = {}
        """By UID."""

    def __len__(self) -> int:
        return len(self._line)

    def see(self, pod: PodState) -> None:
        """Add or remove a pod that the watch shows."""
        uid = pod.ref.uid
        if not self._suits(pod):
            self.forget(uid)
        elif uid not in self._places:
            place = self._places[uid] = self.place(pod)
            self._line[place] = pod

    def place(self, pod: PodState) -> Place:
        """The place of a pod that comes now."""
        return -pod.priority, self._context.order.since(pod), next(self._numbers)

    def forget(self, uid: str) -> None:
        """kube-scheduler has asked about the pod, or it is nominated or gone."""
        place = self._places.pop(uid, None)
        if place is not None:
            del self._line[place]

    def first(self, behind: int, nominated: Collection[Place]) -> tuple[Place, PodState] | None:
        """The first pod that has at least so many before it, together with the `nominated` ones; None without one."""
        for number, (place, pod) in enumerate(islice(self._line.items(), behind + 1)):
            if number + sum(each < place for each in nominated) >= behind:
                return place, pod
        return None

    def _suits(self, pod: PodState) -> bool:
        """Whether kube-scheduler will ask about the pod, and its nodes can be decided without it."""
        info, constraints = pod.info, pod.info.constraints
        if not info.ours or info.on_node or info.gates or info.nominated or info.unschedulable:
            return False
        if pod.state != "waiting" or pod.filtered or pod.refusal is not None or pod.forged or pod.ask is None:
            return False
        if info.prefers or constraints.apart or constraints.spread is not None:
            return False
        uid = pod.ref.uid
        return self._context.gangs.roster.of(uid) is None and self._context.reservations.of(uid) is None
