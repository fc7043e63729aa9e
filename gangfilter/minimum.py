"""The minimum of a gang: how many members it needs, and which of them it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gangfilter.gang import BEFORE, STARTED, Gang
from gangfilter.members import ARRIVED, PLACED, PRESENT, Member, Stage
from gangfilter.table import Phase
from protos.contract import names


def minimum(gang: Gang) -> tuple[int | None, Mapping[str, int]]:
    """How many members the gang needs, in all and by role; None if no source declares it.

    A gang that runs may need fewer than to start.
    """
    terms = gang.terms
    total, roles, lasting = terms.min_member, dict(terms.min_by_role), dict(terms.lasting_by_role)
    has_run = gang.phase in (Phase.RUNNING, Phase.DEGRADED) or (gang.phase is Phase.BINDING and gang.ran)
    if total is None or not lasting or not has_run:
        return total, roles
    return total - sum(roles.get(role, 0) - number for role, number in lasting.items()), roles | lasting


def suffices(gang: Gang, *stages: Stage, also: Sequence[Member] = ()) -> bool:
    """Whether the members at these stages, and `also`, are the minimum: in number, by role, with all required ones.

    No member in `also` is at one of these stages. All existing required members are needed; after the start, as many as
    the start had.
    """
    total, by_role = minimum(gang)
    if total is None or gang.count(*stages) + len(also) < total:
        return False
    roles = gang.roles(*stages)
    roles.update(member.role for member in also)
    if any(roles[role] < number for role, number in by_role.items()):
        return False
    required = gang.required(*PRESENT) if gang.phase in (*BEFORE, Phase.STARTING) else gang.required_at_start
    return gang.required(*stages) + sum(member.required for member in also) >= required


def last(gang: Gang) -> list[Member]:
    """The planned externally bound members, once only they are missing at the barrier."""
    if gang.phase not in (*STARTED, Phase.STARTING):
        return []
    planned = [m for uid in sorted(gang.unheld) if (m := gang.members[uid]).stage is Stage.PLANNED]
    return planned if gang.phase in STARTED or suffices(gang, *ARRIVED, also=planned) else []


def lacking(gang: Gang) -> str:
    """The part of the minimum that does not exist, in words; "" if all exists."""
    total = gang.terms.min_member
    if total is None:
        return f"its number of members is unknown: expected {names.MIN_MEMBER}, or a PodGroup {gang.key}"
    roles = gang.roles(*PRESENT)
    if roles.total() < total:
        return f"{roles.total()} of {total} members exist{_missing(gang, roles, total)}"
    return ", ".join(f"{roles[role]} of {n} {role} exist" for role, n in gang.terms.min_by_role if roles[role] < n)


def _missing(gang: Gang, roles: Counter[str], total: int) -> str:
    """Why the missing members may never come: their makers wait for those that exist."""
    count = roles.total()
    if count == 1 and (maker := gang.at(*PRESENT)[0].controller) is not None and maker.kind == "StatefulSet":
        return "; a StatefulSet makes the next pod when this one runs: write podManagementPolicy: Parallel"
    waiting = gang.members.values() if count == total - 1 else ()
    if leaders := {member.leader for member in waiting if member.leader and not roles[member.leader]}:
        return f"; the {min(leaders)} does not: one that is made when the others run must not be in the minimum"
    return ""


def needs(gang: Gang, role: str, required: bool, beside: Mapping[tuple[str, bool], int]) -> bool:
    """Whether a started gang needs one more such member than those that have a place.

    `beside`: further members to count, by role and by whether they are required.
    """
    placed = (*PLACED, Stage.POSTED)
    present = gang.roles(*placed)
    for (other, _), n in beside.items():
        present[other] += n
    if required and gang.required(*placed) + sum(n for (_, r), n in beside.items() if r) < gang.required_at_start:
        return True
    total, by_role = minimum(gang)
    return present.total() < (total or 0) or present[role] < by_role.get(role, 0)
