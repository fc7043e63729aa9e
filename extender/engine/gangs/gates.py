"""Pods that wait behind our scheduling gate: who is let through, and the removal of the gate, said until it is seen.

kube-scheduler does not know of these pods: unlike one that it has refused, a pod whose wake got lost would never come
back by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from extender.engine.placement.index import Indexes
from extender.engine.queueing.waking import Waking
from extender.engine.state.ledger import Ledger
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import Roster
from extender.engine.types import refusals
from extender.engine.types.effects import Effect, Requeue
from extender.engine.types.shape import Shape

AGAIN_S, AGAIN_MOST_S = 10.0, 300.0
"""Seconds after which a gate that is still there is removed once more; doubled each time."""


class Opening(msgspec.Struct):
    """A gate that is to go."""

    wake: Requeue
    asked_at: float | None = None
    """None: since the clock ticked last."""
    again_s: float = AGAIN_S


class Gates:
    """The pods that are gated by us, and those of them that need not be any more."""

    def __init__(self, ledger: Ledger, indexes: Indexes, waking: Waking, roster: Roster, nominate_from: int) -> None:
        """On clusters of `nominate_from` nodes a nomination is worth a write more."""
        self._ledger, self._indexes, self._waking, self._roster = ledger, indexes, waking, roster
        self._nominate_from = nominate_from
        self._openings: dict[str, Opening] = {}
        self._sought: dict[Shape, None] = {}
        """Shapes of pods that go singly, and for which no node was looked at yet."""
        self._leading = True

    def see(self, pod: PodState, *, waits: bool) -> list[Requeue]:
        """Take in whether our gate is on a pod; let it through unless it `waits` for its gang: nobody else would."""
        uid = pod.ref.uid
        if not pod.info.gated:
            self.forget(uid)
        return [self.opening(Requeue(pod.ref))] if pod.info.gated and not waits and uid not in self._openings else []

    def forget(self, uid: str) -> None:
        """The pod has no gate of ours, or is over."""
        self._openings.pop(uid, None)

    def _is_gated(self, uid: str) -> bool:
        pod = self._ledger.pods.get(uid)
        return pod is not None and pod.info.gated

    def lead(self, yes: bool) -> None:
        """Whether this process may write: what was not said while it might not is said then."""
        self._leading = yes
        for opening in self._openings.values():
            opening.asked_at, opening.again_s = float("-inf"), AGAIN_S

    # -- who is let through

    def opening(self, wake: Requeue) -> Requeue:
        """This wake of a pod for which there is room; behind the gate it removes that, again and again until seen."""
        if wake.gated or not self._is_gated(wake.pod.uid):
            return wake
        large = len(self._ledger.nodes) >= self._nominate_from
        said = Requeue(wake.pod, wake.node if large and wake.nominate else "", gated=True)
        self._openings[wake.pod.uid] = Opening(said)
        return said

    def passed(self, effects: Iterable[Effect]) -> list[Effect]:
        """These effects, without the wakes of pods behind the gate that have no place yet: for those one is sought."""
        told: list[Effect] = []
        for effect in effects:
            if not isinstance(effect, Requeue):
                told.append(effect)
            elif not self._seeks(effect):
                told.append(self.opening(effect))
        return told

    def _seeks(self, wake: Requeue) -> bool:
        pod = self._ledger.pods.get(wake.pod.uid)
        if wake.gated or wake.node or pod is None or not pod.info.gated or pod.ask is None:
            return False
        self._waking.refused(pod, pod.ask, refusals.no_room(pod.ask), 0)
        self._sought[pod.shape] = None
        return True

    def seek(self, nodes: int) -> None:
        """Have those that go singly woken where there is room; looks at so many nodes of each of their shapes."""
        for sought in list(self._sought):
            del self._sought[sought]  # unless there is more of it
            if self._indexes.prepare(sought, nodes):
                self._sought[sought] = None
            else:
                for name, _ in self._indexes.of(sought).ranked():
                    self._waking.room(name)

    def due(self, now: float) -> list[Requeue]:
        """Removals to be said again."""
        wakes = []
        for opening in self._openings.values() if self._leading else ():
            if opening.asked_at is None:
                opening.asked_at = now
            elif now >= opening.asked_at + opening.again_s:
                opening.asked_at, opening.again_s = now, min(AGAIN_MOST_S, 2 * opening.again_s)
                wakes.append(opening.wake)
        return wakes
