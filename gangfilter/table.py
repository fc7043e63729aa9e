"""The barrier as a table: a gang's phases, the facts that move it on, and nothing else.

Every start has an epoch. A gang books nothing before STARTING, and everything it needs then; it leaves BINDING only
whole (RUNNING), taken back (UNDOING), or with nobody left. What is not in the table does not move a gang.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a gang stands."""

    ASSEMBLING = "Assembling"
    """Its minimum does not exist yet, or nobody says what it is."""
    WAITING = "Waiting"
    """It is complete and waits for room; it holds nothing."""
    STARTING = "Starting"
    """It has a place for everybody, held until all are in bind."""
    BINDING = "Binding"
    """All were in bind: the Bindings are being written."""
    RUNNING = "Running"
    DEGRADED = "Degraded"
    """It ran, or cannot be taken back, and fewer than its minimum are left."""
    UNDOING = "Undoing"
    """It could not be finished, or it is preempted: what was bound is being evicted."""
    COMPLETED = "Completed"
    FAILED = "Failed"
    """It waited longer than its user allows."""


class Trigger(StrEnum):
    """What moves a gang on."""

    COMPLETE = "the minimum exists"
    INCOMPLETE = "the minimum does not exist any more"
    FOUND = "members are bound already"
    PLANNED = "everybody has a place"
    ALL_IN_BIND = "the minimum is in bind"
    STUCK = "no member came into bind for too long"
    PLAN_INVALIDATED = "a planned member or node is none any more"
    WHOLE = "the minimum is bound"
    OVERDUE = "not whole in time"
    LOST = "fewer than the minimum are left"
    LOST_EARLY = "fewer than the minimum are left, right after the start"
    RESTART = "the other members shall restart"
    PREEMPTED = "it is preempted"
    UNDONE = "no member of the start is left"
    STRANDED = "what is left of it may not go"
    DONE = "the work is done"
    LIMIT = "it exceeded its schedule timeout"
    RENEWED = "new members come"


P, F = Phase, Trigger
TRANSITIONS: dict[tuple[Phase, Trigger], Phase] = {
    (P.ASSEMBLING, F.COMPLETE): P.WAITING,
    (P.ASSEMBLING, F.FOUND): P.BINDING,
    (P.ASSEMBLING, F.DONE): P.COMPLETED,
    (P.ASSEMBLING, F.LIMIT): P.FAILED,
    (P.WAITING, F.INCOMPLETE): P.ASSEMBLING,
    (P.WAITING, F.PLANNED): P.STARTING,
    (P.WAITING, F.FOUND): P.BINDING,
    (P.WAITING, F.LIMIT): P.FAILED,
    (P.STARTING, F.ALL_IN_BIND): P.BINDING,
    (P.STARTING, F.FOUND): P.BINDING,
    (P.STARTING, F.STUCK): P.WAITING,
    (P.STARTING, F.PLAN_INVALIDATED): P.WAITING,
    (P.BINDING, F.WHOLE): P.RUNNING,
    (P.BINDING, F.OVERDUE): P.UNDOING,
    (P.BINDING, F.LOST): P.DEGRADED,
    (P.BINDING, F.UNDONE): P.ASSEMBLING,
    (P.RUNNING, F.LOST): P.DEGRADED,
    (P.RUNNING, F.LOST_EARLY): P.BINDING,
    (P.RUNNING, F.DONE): P.COMPLETED,
    (P.RUNNING, F.PREEMPTED): P.UNDOING,
    (P.DEGRADED, F.WHOLE): P.RUNNING,
    (P.DEGRADED, F.RESTART): P.UNDOING,
    (P.DEGRADED, F.UNDONE): P.ASSEMBLING,
    (P.DEGRADED, F.DONE): P.COMPLETED,
    (P.DEGRADED, F.PREEMPTED): P.UNDOING,
    (P.UNDOING, F.UNDONE): P.ASSEMBLING,
    (P.UNDOING, F.WHOLE): P.RUNNING,
    (P.UNDOING, F.STRANDED): P.DEGRADED,
    (P.COMPLETED, F.RENEWED): P.ASSEMBLING,
    (P.FAILED, F.FOUND): P.BINDING,
    (P.FAILED, F.RENEWED): P.ASSEMBLING,
}
"""What follows. A pair that is not here changes nothing."""


def after(phase: Phase, fact: Trigger) -> Phase:
    """The phase that follows."""
    return TRANSITIONS.get((phase, fact), phase)


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = [f"    {phase} --> {to}: {fact}" for (phase, fact), to in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> Assembling", *lines])
