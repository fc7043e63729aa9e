"""Members whose bind is never asked of us: kube-scheduler binds them by itself as soon as filter lets them go.

That is so where our extender entry manages resources and they ask none of these; another entry, which only filters,
shows them to us. They go when all others of their start are in bind, and those are bound only after them. What a
Binding of ours would say of their start is written on them afterwards.
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
    """Bound members that belong to the start of their gang from now on: it has passed its barrier."""
    if gang.phase not in STARTED or not gang.unheld:
        return []
    found = [m for uid in sorted(gang.unheld) if (m := gang.members[uid]).stage is Stage.BOUND and not m.epoch]
    for member in found:
        member.epoch = gang.epoch
    return found


def mark(gang: Gang, pod: PodState, settings: Settings) -> SetAnnotation:
    """What a Binding of ours would have said of the pod."""
    group = Group(str(gang.key), gang.epoch, max(1, gang.size))
    told = Allocation(codec.VERSION, settings.unit_mib, settings.slices_per_gpu, {}, group)
    return SetAnnotation(pod.ref, names.ALLOCATION, allocation.encode(told), "")


def stranded(gang: Gang) -> list[Member]:
    """Members that were bound for a start which came to nothing, and that are made anew: to be taken back."""
    found = [m for uid in sorted(gang.unheld) if (m := gang.members[uid]).stage is Stage.BOUND and m.owner]
    for member in found:
        member.epoch = member.epoch or gang.epoch
        gang.put(member, Stage.EVICTING)
    return found
