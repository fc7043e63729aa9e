"""The barrier as a table: the phases of a gang, and the triggers that lead from one to another.

Every start has an epoch. A gang books nothing before STARTING, and then all that it needs. It leaves BINDING only whole
(RUNNING), evicted again (UNDOING), or without members. A pair that is not in the table changes nothing.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a gang."""

    ASSEMBLING = "Assembling"
    """Its minimum does not exist yet, or is not declared."""
    WAITING = "Waiting"
    """Its minimum exists and waits for capacity; it holds nothing."""
    STARTING = "Starting"
    """Every member of the start has a place, held until all are in bind."""
    BINDING = "Binding"
    """All were in bind: the Bindings are being written."""
    RUNNING = "Running"
    DEGRADED = "Degraded"
    """It ran, or cannot be evicted, and has fewer members than its minimum."""
    UNDOING = "Undoing"
    """Its start failed, or it is preempted: its bound members are being evicted."""
    COMPLETED = "Completed"
    FAILED = "Failed"
    """It waited longer than its user allows."""


class Trigger(StrEnum):
    """What moves a gang to another phase; the value is shown to people."""

    COMPLETE = "the minimum exists"
    INCOMPLETE = "the minimum does not exist any more"
    FOUND = "members are bound already"
    PLANNED = "all members of the start have a place"
    ALL_IN_BIND = "the minimum is in bind"
    STUCK = "no member came into bind for too long"
    PLAN_INVALIDATED = "a planned member or node is no longer usable"
    WHOLE = "the minimum is bound"
    OVERDUE = "not whole in time"
    LOST = "fewer than the minimum are left"
    LOST_EARLY = "fewer than the minimum are left, right after the start"
    RESTART = "the other members restart"
    PREEMPTED = "it is preempted"
    UNDONE = "no member of the start is left"
    STRANDED = "the remaining members may not be evicted"
    DONE = "the work is done"
    LIMIT = "it exceeded its schedule timeout"
    RENEWED = "new members come"


P, T = Phase, Trigger
TRANSITIONS: dict[tuple[Phase, Trigger], Phase] = {
    (P.ASSEMBLING, T.COMPLETE): P.WAITING,
    (P.ASSEMBLING, T.FOUND): P.BINDING,
    (P.ASSEMBLING, T.DONE): P.COMPLETED,
    (P.ASSEMBLING, T.LIMIT): P.FAILED,
    (P.WAITING, T.INCOMPLETE): P.ASSEMBLING,
    (P.WAITING, T.PLANNED): P.STARTING,
    (P.WAITING, T.FOUND): P.BINDING,
    (P.WAITING, T.LIMIT): P.FAILED,
    (P.STARTING, T.ALL_IN_BIND): P.BINDING,
    (P.STARTING, T.FOUND): P.BINDING,
    (P.STARTING, T.STUCK): P.WAITING,
    (P.STARTING, T.PLAN_INVALIDATED): P.WAITING,
    (P.BINDING, T.WHOLE): P.RUNNING,
    (P.BINDING, T.OVERDUE): P.UNDOING,
    (P.BINDING, T.LOST): P.DEGRADED,
    (P.BINDING, T.UNDONE): P.ASSEMBLING,
    (P.RUNNING, T.LOST): P.DEGRADED,
    (P.RUNNING, T.LOST_EARLY): P.BINDING,
    (P.RUNNING, T.DONE): P.COMPLETED,
    (P.RUNNING, T.PREEMPTED): P.UNDOING,
    (P.DEGRADED, T.WHOLE): P.RUNNING,
    (P.DEGRADED, T.RESTART): P.UNDOING,
    (P.DEGRADED, T.UNDONE): P.ASSEMBLING,
    (P.DEGRADED, T.DONE): P.COMPLETED,
    (P.DEGRADED, T.PREEMPTED): P.UNDOING,
    (P.UNDOING, T.UNDONE): P.ASSEMBLING,
    (P.UNDOING, T.WHOLE): P.RUNNING,
    (P.UNDOING, T.STRANDED): P.DEGRADED,
    (P.COMPLETED, T.RENEWED): P.ASSEMBLING,
    (P.FAILED, T.FOUND): P.BINDING,
    (P.FAILED, T.RENEWED): P.ASSEMBLING,
}
"""The phase that follows."""


def after(phase: Phase, trigger: Trigger) -> Phase:
    """The phase that follows."""
    return TRANSITIONS.get((phase, trigger), phase)
