"""Pods behind our scheduling gate: removes the gate of a pod that may be scheduled, and repeats it until it is seen.

kube-scheduler does not know these pods. Unlike a refused pod, one whose gate stays because of a lost write would never
come back by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from extender.engine.placement.indexes import Indexes
from extender.engine.queueing.waking import Waking
from extender.engine.state.context import EngineContext
from extender.engine.state.pod_state import PodState
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, Requeue
from extender.engine.types.look import UNASKED, may_be_sampled
from extender.engine.types.shape import Shape

AGAIN_S, AGAIN_MOST_S = 10.0, 300.0
"""Seconds after which the removal of a gate is repeated; doubled each time."""


class Opening(msgspec.Struct):
    """The removal of a gate, until it is seen."""

    wake: Requeue
    asked_at: float | None = None
    """None: since the last tick."""
    again_s: float = AGAIN_S


class Gates:
    """The gates that are being removed, and the single pods behind gates that need a node first."""

    def __init__(self, context: EngineContext, indexes: Indexes, waking: Waking) -> None:
        self._ledger, self._outbox, self._indexes, self._waking = context.ledger, context.outbox, indexes, waking
        self._cannot_fit = context.cannot_fit
        self._openings: dict[str, Opening] = {}
        self._sought: dict[Shape, None] = {}
        """Shapes of gated single pods for which nodes are still to be looked at."""
        self._leading = True

    def see(self, pod: PodState, *, waits: bool) -> None:
        """Take in whether our gate is on a pod; remove the gate unless the pod `waits` for its gang."""
        uid = pod.ref.uid
        if not pod.info.gated:
            self.forget(uid)
        elif not waits and uid not in self._openings:
            self._outbox.put(self.opening(Requeue(pod.ref)))

    def forget(self, uid: str) -> None:
        """The pod has no gate of ours, or is gone."""
        self._openings.pop(uid, None)

    def lead(self, yes: bool) -> None:
        """Whether this process leads; a new leader repeats all removals at once."""
        self._leading = yes
        for opening in self._openings.values():
            opening.asked_at, opening.again_s = float("-inf"), AGAIN_S

    # -- removal of gates

    def opening(self, wake: Requeue) -> Requeue:
        """The requeue of a pod that fits; if the pod is behind our gate, one that removes the gate."""
        pod = self._ledger.pods.get(wake.pod.uid)
        if wake.gated or pod is None or not pod.info.gated:
            return wake
        sampled = may_be_sampled(len(self._ledger.nodes))
        removal = Requeue(wake.pod, wake.node if sampled and wake.nominate else "", gated=True)
        self._openings[wake.pod.uid] = Opening(removal)
        return removal

    def passed(self, effects: Iterable[Effect]) -> list[Effect]:
        """These effects, with gates removed, and without requeues of gated pods that still need a node."""
        passed: list[Effect] = []
        for effect in effects:
            if not isinstance(effect, Requeue):
                passed.append(effect)
            elif not self._seeks(effect):
                passed.append(self.opening(effect))
        return passed

    def _seeks(self, wake: Requeue) -> bool:
        """Whether the requeue is of a gated single pod; then nodes are looked at for the pod first."""
        pod = self._ledger.pods.get(wake.pod.uid)
        if wake.gated or wake.node or pod is None or not pod.info.gated or pod.ask is None:
            return False
        why = self._cannot_fit.of(pod) or refusals.no_room(pod.ask)
        self._waking.refused(pod, pod.ask, why, UNASKED)
        self._sought[pod.shape] = None
        return True

    def seek(self, nodes: int) -> None:
        """Have gated single pods requeued where they fit; looks at up to `nodes` nodes for each of their shapes."""
        for shape in list(self._sought):
            del self._sought[shape]  # unless there are more nodes to look at
            if self._indexes.prepare(shape, nodes):
                self._sought[shape] = None
            else:
                for name, _ in self._indexes.of(shape).ranked():
                    self._waking.room(name)

    def repeat(self, now: float) -> None:
        """Repeat the removals that were not seen for a while."""
        for opening in self._openings.values() if self._leading else ():
            if opening.asked_at is None:
                opening.asked_at = now
            elif now >= opening.asked_at + opening.again_s:
                opening.asked_at, opening.again_s = now, min(AGAIN_MOST_S, 2 * opening.again_s)
                self._outbox.put(opening.wake)
