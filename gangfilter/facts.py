"""Finds the trigger that moves a gang to another phase, from its members, its minimum and the time."""

from __future__ import annotations

from gangfilter.gang import BEFORE, Gang
from gangfilter.members import ARRIVED, OPEN, PLACED, PRESENT, SETTLED, Stage
from gangfilter.minimum import minimum, suffices
from gangfilter.table import Phase, Trigger


def step(gang: Gang, now: float) -> tuple[Phase, Trigger] | None:
    """Move the gang on by one phase; returns the phase that it left and the trigger, None if it stays."""
    if gang.phase in BEFORE:
        gang.recall()
    left, trigger = gang.phase, fact(gang, now)
    if trigger is None:
        return None
    gang.enter(trigger, now)
    return left, trigger


def fact(gang: Gang, now: float) -> Trigger | None:
    """The trigger that applies now, None if there is none."""
    match gang.phase:
        case Phase.ASSEMBLING | Phase.WAITING:
            return _before_start(gang, now)
        case Phase.STARTING:
            return _while_starting(gang, now)
        case Phase.BINDING:
            return _while_binding(gang, now)
        case Phase.RUNNING | Phase.DEGRADED:
            return _while_running(gang, now)
        case Phase.UNDOING:
            return _while_undoing(gang)
        case Phase.COMPLETED | Phase.FAILED:
            return _at_the_end(gang)


def _found(gang: Gang) -> bool:
    """Whether another process has bound members for a start, or the whole minimum is bound in any way."""
    if not gang.count(Stage.BOUND):
        return False
    return any(m.epoch for m in gang.at(Stage.BOUND)) or suffices(gang, *SETTLED)


def _before_start(gang: Gang, now: float) -> Trigger | None:
    if _found(gang):
        return Trigger.FOUND
    if gang.phase is Phase.ASSEMBLING and _done(gang):
        return Trigger.DONE
    complete = suffices(gang, *PRESENT)
    if complete != (gang.phase is Phase.WAITING):
        return Trigger.COMPLETE if complete else Trigger.INCOMPLETE
    return Trigger.LIMIT if now >= gang.moves_at else None


def _while_starting(gang: Gang, now: float) -> Trigger | None:
    if gang.plan_invalidated or not suffices(gang, *PLACED):
        return Trigger.PLAN_INVALIDATED
    if suffices(gang, *ARRIVED):
        return Trigger.ALL_IN_BIND
    if _found(gang):
        return Trigger.FOUND
    held_too_long = gang.began_at is not None and now >= gang.began_at + gang.patience.hold_s
    return Trigger.STUCK if held_too_long or now >= gang.progress_at + gang.patience.stuck_s else None


def _while_binding(gang: Gang, now: float) -> Trigger | None:
    if suffices(gang, *SETTLED):
        return Trigger.WHOLE
    if not gang.count(Stage.PLANNED, Stage.IN_BIND, Stage.POSTED, Stage.BOUND):
        return Trigger.UNDONE
    if gang.ran:
        return Trigger.LOST
    if now < gang.due_at:
        return None
    if gang.terms.min_member is not None:
        return Trigger.OVERDUE
    return Trigger.LOST if gang.count(*SETTLED) >= gang.size else None  # it may be whole: evict no member


def _while_running(gang: Gang, now: float) -> Trigger | None:
    if _done(gang):
        return Trigger.DONE
    if gang.preempted:
        return Trigger.PREEMPTED
    if suffices(gang, *SETTLED):
        return Trigger.WHOLE if gang.phase is Phase.DEGRADED else None
    if gang.phase is Phase.RUNNING:
        early = gang.admission_failed and now < gang.released_at + gang.patience.gang_bind_timeout_s
        return Trigger.LOST_EARLY if early else Trigger.LOST
    if not gang.count(Stage.BOUND, Stage.POSTED):
        return Trigger.UNDONE
    restarts = gang.member_lost and gang.terms.on_member_lost == "restart"
    return Trigger.RESTART if restarts and all(m.removable for m in gang.at(Stage.BOUND)) else None


def _while_undoing(gang: Gang) -> Trigger | None:
    if suffices(gang, *SETTLED):
        return Trigger.WHOLE
    if gang.count(Stage.POSTED, Stage.EVICTING):
        return None
    bound = gang.at(Stage.BOUND)
    if not bound:
        return Trigger.UNDONE
    return None if any(m.removable for m in bound) and not gang.preempted else Trigger.STRANDED


def _at_the_end(gang: Gang) -> Trigger | None:
    if gang.phase is Phase.FAILED and _found(gang):
        return Trigger.FOUND
    if gang.count(Stage.POSTED, Stage.BOUND) and gang.phase is Phase.COMPLETED:
        return None
    return Trigger.RENEWED if gang.arrivals > gang.arrivals_before and gang.count(Stage.IDLE) else None


def _done(gang: Gang) -> bool:
    """Whether all members have succeeded, or those of the role whose success ends the gang.

    An operator may delete the PodGroup of a finished job and leave its pods: then no source declares the minimum.
    """
    undeclared = gang.terms.min_member is None and gang.count(Stage.SUCCEEDED) > 0
    if not gang.count(*OPEN) and (undeclared or suffices(gang, Stage.SUCCEEDED)):
        return True
    ends = gang.terms.on_completion
    if not ends or gang.roles(*OPEN)[ends]:
        return False
    return gang.roles(Stage.SUCCEEDED)[ends] >= max(1, _ending(gang, ends))


def _ending(gang: Gang, role: str) -> int:
    """How many members of a role must succeed to end the gang: all of its start but the surplus ones.

    A lost member is replaced a moment later, and the others wait for it.
    """
    if gang.terms.on_member_lost == "ignore":
        return 0
    placed, (total, by_role) = gang.roles(*PLACED, Stage.POSTED), minimum(gang)
    others = placed.total() - placed[role]
    return max(by_role.get(role, 0), min(gang.started.get(role, 0), (total or 0) - others))
