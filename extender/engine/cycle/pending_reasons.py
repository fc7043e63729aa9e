"""Why a pod is pending, for people: with current numbers, and as Events."""

from __future__ import annotations

from extender.engine.placement.indexes import Indexes
from extender.engine.state.classes import Classes
from extender.engine.state.lacking import Lacking
from extender.engine.state.ledger import Ledger
from extender.engine.state.node_state import NodeState
from extender.engine.state.outbox import Outbox
from extender.engine.state.pod_state import PodState
from extender.engine.state.roster import Roster
from extender.engine.types import refusals
from extender.engine.types.effects import Report
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.names import Resources
from protos.contract.quantity import amount_of_memory
from protos.contract.reason import Reason

REPORT_EVERY_S = 30.0
"""Seconds between Events about one pod."""


class PendingReasons:
    """Finds the reasons, and limits the Events about one pod."""

    def __init__(
        self, ledger: Ledger, outbox: Outbox, indexes: Indexes, classes: Classes, roster: Roster, resources: Resources
    ) -> None:
        self._ledger, self._outbox = ledger, outbox
        self._indexes, self._classes, self._roster = indexes, classes, roster
        self._lack, self._resources = Lacking(ledger.stock), resources

    def no_gpu(self, state: PodState, ask: PodAsk) -> Reason:
        """Why no node takes the pod: none could even if all GPUs were free, or none has enough free GPUs now."""
        return self._lacking(state, ask) or refusals.no_room(ask)

    def _lacking(self, state: PodState, ask: PodAsk) -> Reason | None:
        return self._classes.none_of(state.ref.uid) or self._lack.of(ask)

    def explain(self, state: PodState) -> Reason | None:
        """Why the pod waits, with current numbers; None if it was not refused."""
        if isinstance(state.asked, Reason):
            return state.asked
        known = self._roster.of(state.ref.uid)
        if known is not None and known.reason is not None:
            return known.reason
        reason, ask = state.refusal, state.ask
        if reason is None or ask is None or reason.code not in (refusals.NO_ROOM, refusals.NO_MATCH):
            return reason
        lacking = self._lacking(state, ask)
        if lacking is not None:
            return lacking
        nearest = self._indexes.of(state.shape).nearest(state.excluded)
        node = self._ledger.nodes[nearest] if nearest else None
        size = _too_large(ask, self._ledger.stock.largest(), self._resources.mem)
        return _with_numbers(refusals.no_room(ask), ask, node, size)

    def report(self, state: PodState, reason: Reason, now: float) -> None:
        """Report a refusal in an Event, unless there was one about the pod a moment ago."""
        if now - state.told_at >= REPORT_EVERY_S:
            state.told_at = now
            self._outbox.put(Report(state.ref, self.explain(state) or reason))


def _with_numbers(reason: Reason, ask: PodAsk, nearest: NodeState | None, size: str) -> Reason:
    """The refusal with numbers: what the pod needs, and where the most of it is free.

    `nearest` is the node that lacks least; `size` says that no GPU is large enough, "" if one is.
    """
    if nearest is None or nearest.books is None:
        where = "no node offered has GPUs of ours"
    else:
        where = f"freest: {nearest.name} {choose.misfit(ask, nearest.books).removeprefix('freest: ')}"
    return Reason(reason.code, reason.sentence, f"needs {choose.wanted(ask)}; {size}{where}")


def _too_large(ask: PodAsk, largest: int, resource: str) -> str:
    """That no GPU has so many units of memory, and what to write if they were meant in MiB; "" if a GPU has."""
    container = max(ask.containers, key=lambda each: each.mem)
    if container.mem <= largest:
        return ""
    units = -(-container.mem // ask.unit_mib)
    meant = container.mem >= ask.unit_mib and units <= largest
    in_mib = f"; for {container.mem * container.gpus} MiB, write {resource}: {units * container.gpus}"
    return f"the largest GPU has {amount_of_memory(largest, ask.unit_mib)}{in_mib * meant}; "
