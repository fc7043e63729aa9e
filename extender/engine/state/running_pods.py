"""Pods that are on nodes, as whoever takes their room must know them: whose they are, since when they run, who guards

them. Which pods wait that others could make room for is known here as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from extender.engine.types.effects import Effect, Evict
from extender.engine.types.settings import Settings
from extender.engine.types.wall import Wall
from protos.contract import names
from protos.contract.bounds import GRACE
from protos.contract.objects import Pod
from protos.contract.priority import NEVER

GRACE_S = 30.0
"""Seconds that a pod has to end, if it does not say. Source: core/v1 PodSpec.terminationGracePeriodSeconds."""


SLACK_S = 60.0
"""By which the clocks of the API server and this process may differ."""


class RunningPod(msgspec.Struct, frozen=True):
    """A pod on a node. Times are of the monotonic clock."""

    labels: Mapping[str, str]
    priority: int
    ours: bool
    """Another in its place would come to us."""
    leaving: bool
    """It was told to end, and has to within `bounds.GRACE`."""
    lingers: bool
    """It was told to end, but may take longer than that."""
    ends: float
    """When the grace of one that was told to end is over."""
    running: bool
    """Its phase is Running: a disruption budget may guard it."""
    since: float
    """When it got its node."""
    saved: float
    """Until when its work is not lost: its start, or the last checkpoint that it tells of."""
    grace_s: float
    """What an eviction gives it to end."""
    hurried: bool
    """That is less than it says itself."""


class PendingPod(msgspec.Struct, frozen=True):
    """A pod that waits."""

    priority: int
    never: bool
    """Nobody shall be evicted for it."""
    unschedulable: bool
    """kube-scheduler has found no node for it."""


class RunningPods:
    """All of them, by UID."""

    def __init__(self, settings: Settings, wall: Wall) -> None:
        self._schedulers, self._wall = settings.scheduler_names, wall
        self._known: dict[str, RunningPod] = {}
        self._wishes: dict[str, PendingPod] = {}
        self._priorities: Counter[int] = Counter()
        """Of those that are ours and not leaving."""
        self.turn = 0
        """Counts who came onto a node or was told to end."""
        self.leaving: dict[str, None] = {}
        """Those that were told to end, whoever's they are."""

    def see(self, pod: Pod, now: float) -> None:
        """Take in a pod that is not over."""
        uid = pod.metadata.uid
        before = self._known.get(uid)
        self.forget(uid)
        ours = not self._schedulers or pod.spec.scheduler_name in self._schedulers
        if pod.spec.node_name:
            found = self._occupant(pod, before.since if before is not None else now, now, ours=ours)
            self.turn += before is None or before.leaving != found.leaving
            self._occupies(uid, found)
        elif ours and not pod.metadata.deletion_timestamp:
            self._wishes[uid] = _wish(pod)

    def _occupies(self, uid: str, found: RunningPod) -> None:
        self._known[uid] = found
        if found.leaving:
            self.leaving[uid] = None
        elif found.ours:
            self._priorities[found.priority] += 1

    def _occupant(self, pod: Pod, since: float, now: float, *, ours: bool) -> RunningPod:
        times = [c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled"]
        since = self._clock(times[0] if times else pod.status.start_time, since)
        grace = pod.spec.termination_grace_period_seconds
        told = pod.metadata.deletion_timestamp
        ends = self._clock(told, now)
        lingers = _lingers(told is not None, ends, now)
        return RunningPod(
            labels=pod.metadata.labels,
            priority=pod.spec.priority or 0,
            ours=ours,
            leaving=bool(told) and not lingers,
            lingers=lingers,
            ends=ends,
            running=pod.status.phase == "Running",
            since=since,
            saved=max(since, min(now, self._clock(pod.metadata.annotations.get(names.CHECKPOINT), since))),
            grace_s=GRACE_S if grace is None else float(GRACE.capped(grace)),
            hurried=grace is not None and grace > GRACE.most,
        )

    def shift(self, by: float, now: float) -> None:
        """The wall clock shows so many seconds more than it did: all that was read by it was so much earlier."""
        for uid, each in list(self._known.items()):
            told, ends = each.leaving or each.lingers, each.ends - by
            lingers = _lingers(told, ends, now)
            self.turn += each.leaving != (told and not lingers)
            self.forget(uid)
            since, saved, leaving = each.since - by, each.saved - by, told and not lingers
            moved = msgspec.structs.replace(each, since=since, saved=saved, ends=ends, leaving=leaving, lingers=lingers)
            self._occupies(uid, moved)

    def in_time(self, effect: Effect) -> Effect:
        """The effect; an eviction gives nobody longer than `bounds.GRACE` to end."""
        seen = self._known.get(effect.pod.uid) if isinstance(effect, Evict) else None
        if isinstance(effect, Evict) and seen is not None and (seen.hurried or seen.lingers):
            return msgspec.structs.replace(effect, grace_s=GRACE.most)
        return effect

    def _clock(self, timestamp: str | None, otherwise: float) -> float:
        """A time of the API on the monotonic clock, be it one that is yet to come."""
        try:
            return self._wall.moment(timestamp) if timestamp else otherwise
        except ValueError:
            return otherwise

    def forget(self, uid: str) -> None:
        """The pod is over."""
        self._wishes.pop(uid, None)
        self.leaving.pop(uid, None)
        known = self._known.pop(uid, None)
        if known is not None and known.ours and not known.leaving:
            self._priorities[known.priority] -= 1
            if not self._priorities[known.priority]:
                del self._priorities[known.priority]

    def of(self, uid: str) -> RunningPod | None:
        """The pod with this UID, None if it is on no node."""
        return self._known.get(uid)

    @property
    def pending_pods(self) -> Mapping[str, PendingPod]:
        """The pods that wait."""
        return self._wishes

    @property
    def priorities(self) -> Collection[int]:
        """The priorities that there are of those that are ours and stay."""
        return self._priorities.keys()


def _lingers(told: bool, ends: float, now: float) -> bool:
    """Whether one that was told to end may take longer than it may."""
    return told and ends > now + GRACE.most + SLACK_S


def _wish(pod: Pod) -> PendingPod:
    refused = any(
        c.type == "PodScheduled" and c.status == "False" and c.reason == "Unschedulable" for c in pod.status.conditions
    )
    return PendingPod(
        pod.spec.priority or 0, pod.spec.preemption_policy == NEVER, refused and not pod.spec.scheduling_gates
    )
