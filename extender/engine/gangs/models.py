"""Members that come to a started gang get GPUs of the model that equal members have, unless they allow several models.

Nothing is kept for that: the model follows from the places of the members.
"""

from __future__ import annotations

from extender.engine.planning.one_model import models_on
from extender.engine.state.context import EngineContext
from extender.engine.state.pod_state import PodState
from extender.engine.types.shape import of_model
from gangfilter.gang import Gang
from gangfilter.members import HOLDING, ON_NODE
from protos.contract.ask import PodAsk
from protos.contract.selection import ANYTHING

PLACED = (*HOLDING, *ON_NODE)


class Models:
    """Restricts pending members."""

    def __init__(self, context: EngineContext) -> None:
        self._ledger = context.ledger

    def restrict(self, gang: Gang, uid: str) -> None:
        """Restrict a pending member to the model of an equal member that has a place, if there is one."""
        pod = self._ledger.pods[uid]
        if pod.state == "waiting":
            pod.model = self._of_equals(gang, pod)

    def _of_equals(self, gang: Gang, pod: PodState) -> str:
        if not gang.count(*PLACED) or not self._matters(pod):
            return ""
        others = (self._ledger.pods.get(m.uid) for m in gang.members.values() if m.stage in PLACED)
        equal = (self._of(other) for other in others if other is not None and other.asked == pod.asked)
        return next(filter(None, equal), "")

    def ask_like(self, pod: PodState) -> PodAsk | None:
        """What a new member requests that is equal to this one, which has a place."""
        model = self._of(pod) if self._matters(pod) else ""
        return of_model(pod.asked, model) if model and isinstance(pod.asked, PodAsk) else pod.ask

    def _matters(self, pod: PodState) -> bool:
        """Whether the pod may get GPUs of several models and does not allow them."""
        mixed = not isinstance(pod.asked, PodAsk) or pod.asked.selection.mixed
        return not mixed and len(self._ledger.stock.models_of(ANYTHING)) > 1

    def _of(self, pod: PodState) -> str:
        """The model of the GPUs that a pod has, "" if it is unknown."""
        node = self._ledger.nodes.get(pod.node)
        entry = node.books.entries.get(pod.ref.uid) if node is not None and node.books is not None else None
        known = entry is not None and entry.placed
        return min(models_on(node, entry.charges), default="") if entry is not None and known else ""
