"""The minimum of a gang: how many members there have to be, and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangfilter.gang import BEFORE, STARTED, Gang
from gangfilter.members import ARRIVED, PLACED, PRESENT, Member, Stage
from gangfilter.table import Phase


def minimum(gang: Gang) -> tuple[int | None, Mapping[str, int]]:
    """How many members there have to be, in all and by role; None if nobody says so.

    One that has started may need fewer than to start.
    """
    terms = gang.terms
    total, roles, lasting = terms.min_member, dict(terms.min_by_role), dict(terms.lasting_by_role)
    has_run = gang.phase in (Phase.RUNNING, Phase.DEGRADED) or (gang.phase is Phase.BINDING and gang.ran)
    if total is None or not lasting or not has_run:
        return total, roles
    return total - sum(roles.get(role, 0) - least for role, least in lasting.items()), roles | lasting


def suffices(gang: Gang, *stages: Stage, also: Sequence[Member] = ()) -> bool:
    """Whether the members at these stages are the minimum: in number, by role, and with all that are required.

    `also` counts too; none of them is at these stages.

    Required are those that exist; once started, as many as the start had.
    """
    least, by_role = minimum(gang)
    if least is None or gang.count(*stages) + len(also) < least:
        return False
    roles = gang.roles(*stages)
    roles.update(member.role for member in also)
    if any(roles[role] < of_role for role, of_role in by_role.items()):
        return False
    vital = gang.required(*PRESENT) if gang.phase in (*BEFORE, Phase.STARTING) else gang.vital
    return gang.required(*stages) + sum(member.required for member in also) >= vital


def last(gang: Gang) -> list[Member]:
    """The planned members that kube-scheduler binds by itself, once nobody is missing but them."""
    if gang.phase not in (*STARTED, Phase.STARTING):
        return []
    planned = [m for uid in sorted(gang.unheld) if (m := gang.members[uid]).stage is Stage.PLANNED]
    return planned if gang.phase in STARTED or suffices(gang, *ARRIVED, also=planned) else []


def to_start(gang: Gang) -> int:
    """How many members start together at least, 0 if nobody says so."""
    return max(gang.terms.min_member or 0, sum(of_role for _, of_role in gang.terms.min_by_role))


def lacking(gang: Gang) -> str:
    """Which part of the minimum does not exist, in words; "" if it does."""
    least = gang.terms.min_member
    if least is None:
        return "its number of members is unknown"
    roles = gang.roles(*PRESENT)
    if roles.total() < least:
        leader = _leader_to_come(gang, least - roles.total())
        hint = f"; the {leader} does not: one that is made when the others run must not be in the minimum"
        return f"{roles.total()} of {least} members exist{hint if leader else ''}"
    return ", ".join(f"{roles[role]} of {n} {role} exist" for role, n in gang.terms.min_by_role if roles[role] < n)


def _leader_to_come(gang: Gang, missing: int) -> str:
    """The role of the one member that is missing, if it may be waiting for the others; else ""."""
    if missing != 1:
        return ""
    leaders = {m.leader for m in gang.members.values() if m.leader}
    return next((leader for leader in sorted(leaders) if not gang.roles(*PRESENT)[leader]), "")


def needs(gang: Gang, role: str, required: bool, beside: Mapping[tuple[str, bool], int]) -> bool:
    """Whether, once started, it is short of one more such member, beside those that have a place.

    `beside`: how many shall be counted too, by role and by whether they are required.
    """
    placed = (*PLACED, Stage.POSTED)
    there = gang.roles(*placed)
    for (other, _), n in beside.items():
        there[other] += n
    if required and gang.required(*placed) + sum(n for (_, vital), n in beside.items() if vital) < gang.vital:
        return True
    least, by_role = minimum(gang)
    return there.total() < (least or 0) or there[role] < by_role.get(role, 0)
