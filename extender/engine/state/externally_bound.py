"""Members that kube-scheduler binds by itself, without asking us, once filter has passed them.

That happens if our extender entry manages resources and they request none of these; a second entry, which only filters,
shows them to us. Filter passes them when all other members of the start wait at the barrier, and those are bound after
them. The annotation of their start, which no Binding of ours carries, is written later.
"""

from __future__ import annotations

from extender.engine.state.pod_state import PodState
from extender.engine.types.effects import SetAnnotation
from extender.engine.types.settings import Settings
from gangfilter.gang import STARTED, Gang
from gangfilter.members import Member, Stage
from protos.contract import allocation, codec, names
from protos.contract.allocation import Allocation, Group


def joining(gang: Gang) -> list[Member]:
    """The bound members that now join the start of their gang, which has passed its barrier."""
    if gang.phase not in STARTED or not gang.unheld:
        return []
    members = [m for uid in sorted(gang.unheld) if (m := gang.members[uid]).stage is Stage.BOUND and not m.epoch]
    for member in members:
        member.epoch = gang.epoch
    return members


def mark(gang: Gang, pod: PodState, settings: Settings) -> SetAnnotation:
    """The annotation that a Binding of ours would have carried."""
    group = Group(str(gang.key), gang.epoch, max(1, gang.size))
    started = Allocation(codec.VERSION, settings.unit_mib, settings.slices_per_gpu, {}, group)
    return SetAnnotation(pod.ref, names.ALLOCATION, allocation.encode(started), "")


def stranded(gang: Gang) -> list[Member]:
    """The members bound for a start that failed; they are evicted, as their owners will recreate them."""
    members = [m for uid in sorted(gang.unheld) if (m := gang.members[uid]).stage is Stage.BOUND and m.owner]
    for member in members:
        member.epoch = member.epoch or gang.epoch
        gang.put(member, Stage.EVICTING)
    return members
