"""Why a pod is pending, for people: with current numbers, and as Events."""

from __future__ import annotations

from extender.engine.gangs import outsiders
from extender.engine.placement.indexes import Indexes
from extender.engine.queueing.tenancy import Tenancy
from extender.engine.state.classes import Classes
from extender.engine.state.context import EngineContext
from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import Roster
from extender.engine.types import refusals
from extender.engine.types.effects import Report
from protos.contract import ask_words
from protos.contract.ask import PodAsk
from protos.contract.misfit import misfit
from protos.contract.reason import Reason, listed

NAMED_GATES = 3
"""Scheduling gates that a sentence names."""
REPORT_EVERY_S = 30.0
"""Seconds between Events about one pod."""
UNREPORTED = 4096
"""Pods that a replica reports as soon as it leads."""


class PendingReasons:
    """Finds the reasons, and limits the Events about one pod."""

    def __init__(
        self, context: EngineContext, indexes: Indexes, classes: Classes, roster: Roster, tenancy: Tenancy
    ) -> None:
        self._ledger, self._outbox, self._cannot_fit = context.ledger, context.outbox, context.cannot_fit
        self._indexes, self._classes, self._roster = indexes, classes, roster
        self._queues, self._quota = tenancy.queues, tenancy.admission.quota
        self._unreported: dict[str, tuple[PodState, Reason]] = {}

    def never(self, state: PodState) -> Reason | None:
        """Why no node could take the pod even if it were empty, None if one could."""
        never = self._cannot_fit.of(state)
        return self._classes.none_of(state.ref.uid) or never if never is not None else None

    def explain(self, state: PodState) -> Reason | None:
        """Why the pod waits, with current numbers; None if it was not refused."""
        if isinstance(state.asked, Reason):
            return state.asked
        known = self._roster.of(state.ref.uid)
        if known is not None and state.ref.uid in known.outsiders:
            return outsiders.why(known, state.ref.uid)
        if known is not None and known.reason is not None:
            return known.reason
        never = self.never(state) if state.state == "waiting" else None
        if never is not None:
            return never
        reason, ask = state.refusal, state.ask
        if reason is None or ask is None or reason.code not in (refusals.NO_ROOM, *refusals.NEVER):
            return reason
        nearest = self._indexes.of(state.shape).nearest(state.excluded)
        return _with_numbers(refusals.no_room(ask), ask, self._ledger.nodes[nearest] if nearest else None)

    def unasked(self, state: PodState) -> Reason:
        """Why kube-scheduler has not asked for a pod that waits for nothing else, as far as the pod's object tells."""
        info, local_queue = state.info, self._queues.of(state.ref.uid)
        if info.scheduler and not state.filtered:
            return refusals.other_scheduler(info.scheduler)
        if info.gates:
            return refusals.gated(listed(info.gates, NAMED_GATES))
        barred = self._quota.barred(local_queue) if local_queue is not None else None
        if barred is not None:
            return barred
        return refusals.unschedulable(info.message) if info.message else refusals.UNASKED

    def report(self, state: PodState, reason: Reason, now: float) -> None:
        """Report a refusal in an Event, unless there was one about the pod a moment ago."""
        if now - state.told_at >= REPORT_EVERY_S:
            self.tell(state, self.explain(state) or reason, now)

    def warn(self, state: PodState, reason: Reason, now: float) -> None:
        """Report what kube-scheduler may never ask about. A replica that does not lead reports it when it leads."""
        if self._roster.leading:
            self.tell(state, reason, now)
        elif len(self._unreported) < UNREPORTED:
            self._unreported[state.ref.uid] = state, reason

    def lead(self, yes: bool, now: float) -> None:
        """Start or stop leading."""
        if yes:
            for state, reason in self._unreported.values():
                if state.state == "waiting":
                    self.tell(state, reason, now)
            self._unreported.clear()

    def forget(self, uid: str) -> None:
        """The pod has ended."""
        self._unreported.pop(uid, None)

    def tell(self, state: PodState, reason: Reason, now: float) -> None:
        """Write an Event about the pod."""
        state.told_at = now
        self._outbox.put(Report(state.ref, reason))


def _with_numbers(reason: Reason, ask: PodAsk, nearest: NodeState | None) -> Reason:
    """The refusal with numbers: what the pod needs, and where the most of it is free: `nearest` lacks least."""
    if nearest is None or nearest.books is None:
        where = "no node offered has GPUs of ours"
    else:
        where = f"freest: {nearest.name} {misfit(ask, nearest.books).removeprefix('freest: ')}"
    return Reason(reason.code, reason.sentence, f"needs {ask_words.wanted(ask)}; {where}")
