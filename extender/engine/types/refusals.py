"""Why a pod does not get GPUs: the constant sentence for the scheduler and the arithmetic for people."""

from __future__ import annotations

from typing import NamedTuple

from gangfilter.group import GroupKey
from protos.contract import choose
from protos.contract.ask import PodAsk
from protos.contract.reason import Reason

NO_ROOM = "NoRoom"
NO_MATCH = "NoMatch"
IN_LINE = "InLine"
FOR_ROOM = (NO_ROOM, NO_MATCH, IN_LINE)
"""Codes of those that wait for GPUs; they are woken when there are some for them."""
QUEUE = "Queue"
"""How the codes of those begin that wait for their queue: room on nodes does not help them."""
QUEUE_SHORT = ("QueueFull", "QueueReserved")
"""Codes of those of them who are helped if somebody leaves the queue."""
GANG_NO_ROOM = "GangNoRoom"
GANG_AGAIN = "GangAgain"
BEHIND_GANGS = Reason(NO_ROOM, "pending workloads go before members beyond the minimum of a running gang")
FORGED = Reason(
    "AllocationForged", "the pod has an allocation that Gangshare did not write; it waits until that is removed"
)
KEPT_IN_LINE = Reason(IN_LINE, "the free GPUs are reserved for workloads before this pod in its queue")
GONE = Reason("PodGone", "the pod has ended")
UNSEEN = Reason("BindUnseen", "this extender has not placed the pod; it is scheduled again")
TAKEN = Reason("BindConflict", "the GPUs on the chosen node are no longer free; the pod is scheduled again")
SET_ASIDE = Reason(
    "SetAside", "Gangshare had an internal error over this object; it is quarantined until it changes, or for a while"
)
NOT_READY = Reason("NotReady", "the pod's gang waits until the extender has read the cluster")
ELSEWHERE = Reason("BindElsewhere", "the pod is bound to another node already")


class About(NamedTuple):
    """Makes the refusals of one code: their sentences differ in the one name that stands for the braces."""

    code: str
    sentence: str

    def __call__(self, name: object, numbers: str = "") -> Reason:
        return Reason(self.code, self.sentence.format(name), numbers)


assembling = About("GangAssembling", "gang {} waits for its members")
"""Its minimum does not exist."""
gang_no_room = About(GANG_NO_ROOM, "gang {} waits until all its members fit")
gang_starting = About("GangStarting", "gang {} starts with other pods or nodes first")
"""It has places, and this pod or node is not among them."""
gang_conflict = About("GangConflict", "gang {} has values that differ or cannot be read; the strictest value is used")
"""Its members or PodGroups say different things, or some that cannot be read."""
gang_again = About(GANG_AGAIN, "gang {} is planned again")
"""A start was given up."""
gang_undone = About("GangUndone", "gang {} is evicted and restarts as a whole")
"""It could not be finished, or starts anew."""
gang_lost = About("GangMemberLost", "gang {} lost members and runs with fewer than its minimum")
"""It ran whole, and members are gone."""
gang_below = About("GangBelowMinimum", "gang {} runs with fewer than its minimum until more members run")
"""Its minimum was raised, or it was found so: nothing is known to be lost."""
gang_done = About("GangCompleted", "gang {} has done its work")
gang_limit = About("GangTimedOut", "gang {} exceeded its schedule timeout")
"""Its user's limit is over."""
priority_capped = About("PriorityCapped", "gang {} gets less than the PriorityClass of its PodGroup gives")
"""The PriorityClass that its PodGroup names gives less than it says."""
preemption_forbidden = About("PreemptionForbidden", "{} may not preempt other pods")
"""Those whose room it could take may not be evicted."""
preemption_postponed = About("PreemptionPostponed", "{} does not preempt for now")
"""Nothing forbids it, and nobody is evicted at this moment."""
preemption_stopped = About("PreemptionStopped", "{} stops preempting")
"""One of them was not let go."""
class_missing = About("ClassMissing", "GpuClass {} does not exist; the pod waits for it")
class_unreadable = About("ClassUnreadable", "GpuClass {} cannot be read; the pod waits until it is corrected")
class_empty = About(NO_MATCH, "no GPU in the cluster is of class {}")
queue_missing = About("QueueMissing", "queue {} does not exist; workloads that name it wait for it")
queue_forbidden = About(
    "QueueForbidden",
    "queue {} does not admit pods of this namespace; workloads that name it wait until it does",
)
"""Its queue selects other namespaces than the one that it is in."""
queue_closed = About("QueueClosed", "queue {} is closed; its workloads wait until it is open")
"""Nothing new starts in its queue, or in one above that."""
queue_unreadable = About("QueueUnreadable", "queue {} cannot be read; its workloads wait until it is corrected")
"""Its queue, or one above that, cannot be read and never could."""
queue_full = About("QueueFull", "queue {} has no quota left for this request")
"""It would take its queue, or one above that, past what that may have."""
runtime_unreadable = About("RuntimeUnreadable", "how long {} will run cannot be read: it is unknown")
"""What it is expected to run is said in a way that says nothing."""
no_match = About(NO_MATCH, "no GPU in the cluster matches {}")


def gang_too_large(gang: GroupKey, least: int, most: int) -> Reason:
    """So many cannot be kept in bind together."""
    numbers = f"its minimum is {least} members, and at most {most} can start together here"
    return Reason("GangTooLarge", f"gang {gang} is too large to start as one", numbers)


def preempting(who: str, units: str, over_quota: str, *, spare: bool) -> Reason:
    """Others are evicted for it. `over_quota`: what other queues have beyond their due, "" if none of theirs are.

    `spare`: all of them are members that their gangs can spare.
    """
    if over_quota:
        return Reason("Reclaiming", f"{who} reclaims the fair share of its queue", f"{units}; {over_quota}")
    if spare:
        return Reason("Preempting", f"{who} preempts members that their gangs can spare", units)
    return Reason("Preempting", f"{who} preempts pods of lower priority", units)


def preempted(by: str, priority: int, unit: str) -> Reason:
    """It is evicted for others. `unit`: what goes with it."""
    return Reason("Preempted", f"{by} of priority {priority} preempts this pod", f"{unit} is evicted")


def scaling_in(by: str, priority: int) -> Reason:
    """Its job's operator is asked to let it go."""
    return Reason("ScalingIn", f"{by} of priority {priority} needs the GPUs of this worker: its job scales in")


def node_leaving(node: str, sign: str) -> Reason:
    """It goes before its node does: its gang can spare it, or starts anew without that node."""
    return Reason(
        "NodeLeaving", f"node {node} is about to be removed: the pod is evicted in time", f"the node has {sign}"
    )


def reclaimed(by: str, unit: str, over_quota: str) -> Reason:
    """It is evicted for what is due to another queue. `unit`: what goes with it; `over_quota`: what its queue has."""
    return Reason("Reclaimed", f"{by} reclaims the fair share of its queue", f"{unit} is evicted; {over_quota}")


def for_queue(reason: Reason | None) -> bool:
    """Whether somebody waits for its queue."""
    return reason is not None and reason.code.startswith(QUEUE)


def queue_reserved(numbers: str) -> Reason:
    """What is left of the cluster, or of a queue, is guaranteed to others."""
    return Reason("QueueReserved", "the free capacity is guaranteed to other queues", numbers)


def not_joined(gpus: int, joined: str, conditions: str, most: int) -> Reason:
    """Nowhere so many GPUs lie together as they are asked for; there are places for `most`, 0 for none."""
    which = f" that match {conditions}" if conditions else ""
    sentence = f"no node in the cluster has {joined} for {gpus} GPUs{which}"
    return Reason(NO_MATCH, sentence, f"for {most} at most" if most else "not even for 2")


def no_room(ask: PodAsk) -> Reason:
    """The constant sentence for an ask that no node can take now."""
    if len(ask.containers) == 1 and not ask.containers[0].whole and ask.containers[0].gpus == 1:
        container = ask.containers[0]
        amounts = [f"{container.mem} units"] if container.mem else []
        amounts += [f"{container.slices} slices"] if container.slices else []
        return Reason(NO_ROOM, f"no GPU with {' and '.join(amounts) or 'room'} free")
    return Reason(NO_ROOM, f"no node with {choose.wanted(ask)} free")
