"""Pods by what others look for: those that wait for a node, those that leave theirs, and the priorities of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from extender.engine.state.pod_info import UNREAD, PodInfo, read, shifted
from extender.engine.state.pod_state import PodState
from extender.engine.types.effects import Effect, Evict
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall
from protos.contract.bounds import GRACE
from protos.contract.objects import Pod


class RunningPods:
    """Puts what is read of a pod on its record, and keeps the indexes of all records in step with that.

    No index has a pod that is unread: one that is over, or set aside.
    """

    def __init__(self, pods: Mapping[str, PodState], settings: Settings, wall: Wall) -> None:
        """`pods`: the records, by UID."""
        self._pods, self._schedulers, self._clock = pods, settings.scheduler_names, wall.clock
        self.pending: dict[str, PodState] = {}
        """Those that are ours and that the watch shows without a node."""
        self.leaving: dict[str, None] = {}
        """Those that were told to end, whoever's they are."""
        self._priorities: Counter[int] = Counter()
        """Of those that are ours and stay where they are."""
        self.turn = 0
        """Counts who came onto a node or was told to end."""

    def see(self, pod: Pod, state: PodState, now: float) -> None:
        """Read a pod that the watch shows and that is not over."""
        self.asked(pod, state, now)
        if state.info.ours and not state.info.on_node and not pod.metadata.deletion_timestamp:
            self.pending[state.ref.uid] = state

    def asked(self, pod: Pod, state: PodState, now: float) -> None:
        """Read a pod that kube-scheduler asks for, and that no watch has shown: it is not taken for one that waits."""
        self._put(state, self.read(pod, state, now))

    def read(self, pod: Pod, state: PodState, now: float) -> PodInfo:
        """What a pod says; nothing is kept of it."""
        return read(pod, state.info, self._schedulers, self._clock, now)

    def _put(self, pod: PodState, info: PodInfo) -> None:
        uid, before = pod.ref.uid, pod.info
        self.pending.pop(uid, None)
        self.leaving.pop(uid, None)
        if before.stays:
            self._count(pod.priority, -1)
        pod.info = info
        if info.stays:
            self._count(pod.priority, 1)
        elif info.leaving:
            self.leaving[uid] = None
        self.turn += info.on_node and (not before.on_node or before.leaving != info.leaving)

    def _count(self, priority: int, sign: int) -> None:
        self._priorities[priority] += sign
        if not self._priorities[priority]:
            del self._priorities[priority]

    def shift(self, by: float, now: float) -> None:
        """The wall clock shows so many seconds more than it did: all that was read by it was so much earlier."""
        for pod in self._pods.values():
            if pod.info.on_node:
                self._put(pod, shifted(pod.info, by, now))

    def forget(self, uid: str) -> None:
        """The pod is over, or set aside."""
        pod = self._pods.get(uid)
        if pod is not None:
            self._put(pod, UNREAD)
        self.pending.pop(uid, None)
        self.leaving.pop(uid, None)

    def recount(self) -> None:
        """Count the priorities anew: an error of ours may have left that of a pod that is gone."""
        self._priorities = Counter(pod.priority for pod in self._pods.values() if pod.info.stays)

    def of(self, uid: str) -> PodInfo | None:
        """What the pod with this UID says, None if it is on no node."""
        pod = self._pods.get(uid)
        return pod.info if pod is not None and pod.info.on_node else None

    @property
    def priorities(self) -> Collection[int]:
        """The priorities that there are of those that are ours and stay."""
        return self._priorities.keys()

    def in_time(self, effect: Effect) -> Effect:
        """The effect; an eviction gives nobody longer than `bounds.GRACE` to end."""
        seen = self.of(effect.pod.uid) if isinstance(effect, Evict) else None
        if isinstance(effect, Evict) and seen is not None and (seen.hurried or seen.lingers):
            return msgspec.structs.replace(effect, grace_s=GRACE.most)
        return effect
