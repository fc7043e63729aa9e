"""Members whose bind is never asked of us: kube-scheduler binds them by itself as soon as filter lets them go.

That is so where our extender entry manages resources and they ask none of these; another entry, which only filters,
shows them to us. They go when all others of their start are in bind, and those are bound only after them. What a
Binding of ours would say of their start is written on them afterwards.
"""

from __future__ import annotations

from extender.engine.effects import PutBack
from extender.engine.ledger import PodState
from extender.engine.settings import Settings
from gangfilter.gang import STARTED, Gang
from gangfilter.members import Member, Stage
from protos.contract import allocation, codec, names
from protos.contract.allocation import Allocation, Group
from protos.contract.objects import Pod


def marked(gang: Gang, pod: Pod, state: PodState, settings: Settings) -> PutBack | None:
    """Count a bound member to the start of its gang; returns what to write on it, None if that is there."""
    member = gang.members.get(pod.metadata.uid)
    if member is None or member.uid not in gang.unheld or member.stage is not Stage.BOUND or gang.phase not in STARTED:
        return None
    member.epoch = member.epoch or gang.epoch
    if state.allocation is not None or names.ALLOCATION in pod.metadata.annotations:
        return None
    group = Group(str(gang.key), member.epoch, max(1, gang.size))
    text = allocation.encode(Allocation(codec.VERSION, settings.unit_mib, settings.slices_per_gpu, {}, group))
    return PutBack(state.ref, names.ALLOCATION, text, pod.metadata.resource_version)


def stranded(gang: Gang) -> list[Member]:
    """Members that were bound for a start which came to nothing, and that are made anew: to be taken back."""
    found = [m for uid in sorted(gang.unheld) if (m := gang.members[uid]).stage is Stage.BOUND and m.owner]
    for member in found:
        member.epoch = member.epoch or gang.epoch
        gang.put(member, Stage.LEAVING)
    return found
