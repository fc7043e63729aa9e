"""Indexes of pods: pending pods, terminating pods, and the priorities of running pods."""

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
    """Sets `PodState.info`, and keeps the indexes in step with it.

    No index has an unread pod, that is a pod that has ended or is in quarantine.
    """

    def __init__(self, pods: Mapping[str, PodState], settings: Settings, wall: Wall) -> None:
        """`pods`: the records, by UID."""
        self._pods, self._schedulers, self._clock = pods, settings.scheduler_names, wall.clock
        self.pending: dict[str, PodState] = {}
        """Pods of ours that the watch shows without a node."""
        self.leaving: dict[str, None] = {}
        """Terminating pods of all schedulers."""
        self._priorities: Counter[int] = Counter()
        """Of pods with `PodInfo.stays`."""
        self.turn = 0
        """Counts pods that were bound or began to terminate."""

    def see(self, pod: Pod, state: PodState, now: float) -> None:
        """Read a live pod that the watch shows."""
        self.asked(pod, state, now)
        if state.info.ours and not state.info.on_node and not pod.metadata.deletion_timestamp:
            self.pending[state.ref.uid] = state

    def asked(self, pod: Pod, state: PodState, now: float) -> None:
        """Read a pod that kube-scheduler asks for before the watch shows it: it does not become pending."""
        self._put(state, self.read(pod, state, now))

    def read(self, pod: Pod, state: PodState, now: float) -> PodInfo:
        """Read a pod without recording it."""
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
        """The wall clock moved ahead by these seconds."""
        for pod in self._pods.values():
            if pod.info.on_node:
                self._put(pod, shifted(pod.info, by, now))

    def forget(self, uid: str) -> None:
        """The pod has ended or is in quarantine."""
        pod = self._pods.get(uid)
        if pod is not None:
            self._put(pod, UNREAD)
        self.pending.pop(uid, None)
        self.leaving.pop(uid, None)

    def recount(self) -> None:
        """Count the priorities again: an internal error may have left the priority of a deleted pod."""
        self._priorities = Counter(pod.priority for pod in self._pods.values() if pod.info.stays)

    def of(self, uid: str) -> PodInfo | None:
        """The info of the pod with this UID, None if it is on no node."""
        pod = self._pods.get(uid)
        return pod.info if pod is not None and pod.info.on_node else None

    @property
    def priorities(self) -> Collection[int]:
        """The priorities of the pods with `PodInfo.stays`."""
        return self._priorities.keys()

    def in_time(self, effect: Effect) -> Effect:
        """The effect; the grace period of an eviction is at most `bounds.GRACE`."""
        seen = self.of(effect.pod.uid) if isinstance(effect, Evict) else None
        if isinstance(effect, Evict) and seen is not None and (seen.hurried or seen.lingers):
            return msgspec.structs.replace(effect, grace_s=GRACE.most)
        return effect
