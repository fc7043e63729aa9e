"""Why a pod gets no GPUs: constant sentences for kube-scheduler, numbers for people."""

from __future__ import annotations

from typing import NamedTuple

from gangfilter.group import GroupKey
from protos.contract import ask_words, names
from protos.contract.ask import PodAsk
from protos.contract.isolation import Demanded
from protos.contract.reason import Reason

NO_ROOM = "NoRoom"
NO_MATCH = "NoMatch"
CANNOT_FIT = "CannotFit"
IN_LINE = "InLine"
FOR_ROOM = (NO_ROOM, IN_LINE)
"""Codes of pods that wait for GPUs and are requeued when GPUs are free."""
NO_ISOLATION = "NoIsolation"
NEVER = (NO_MATCH, CANNOT_FIT, NO_ISOLATION)
"""Codes of pods that no node could take even if it were empty: they are requeued when another node comes."""
QUEUE = "Queue"
"""Prefix of the codes of pods that wait for their queue, not for nodes."""
QUEUE_SHORT = ("QueueFull", "QueueReserved")
"""The queue codes of pods that can be admitted once others leave the queue."""
GANG_NO_ROOM = "GangNoRoom"
BEHIND_GANGS = Reason(NO_ROOM, "pending workloads go before members beyond the minimum of a running gang")
FORGED = Reason(
    "AllocationForged", "the pod has an allocation that Gangshare did not write; the pod waits until it is removed"
)
KEPT_IN_LINE = Reason(IN_LINE, "the free GPUs are reserved for workloads before this pod in its queue")
NOT_LOOKED_AT = Reason(
    "NodesNotChecked", "the pod fits on a node that kube-scheduler did not check; the pod is nominated to that node"
)
GONE = Reason("PodGone", "the pod has ended")
UNSEEN = Reason("BindUnseen", "this extender has not placed the pod; it is scheduled again")
TAKEN = Reason("BindConflict", "the GPUs on the chosen node are no longer free; the pod is scheduled again")
SET_ASIDE = Reason(
    "SetAside", "Gangshare had an internal error on this object; it is quarantined until it changes or is retried"
)
UNNAMED = Reason(
    "GangUnnamed", "the pod waits for a gang that it does not name: gangshare.io/group is missing or cannot be read"
)
UNASKED = Reason("Unasked", "kube-scheduler has not asked Gangshare for the pod yet")
NOT_READY = Reason("NotReady", "the pod's gang waits until the extender has read the cluster")
ELSEWHERE = Reason("BindElsewhere", "the pod is bound to another node already")


class About(NamedTuple):
    """Makes the refusals of one code. The braces in the sentence stand for a name."""

    code: str
    sentence: str

    def __call__(self, name: object, numbers: str = "") -> Reason:
        return Reason(self.code, self.sentence.format(name), numbers)


other_scheduler = About("OtherScheduler", "schedulerName is {}: that scheduler does not ask Gangshare")
gated = About("SchedulingGated", "the pod waits for its scheduling gate {}")
"""A gate of another controller."""
assembling = About("GangAssembling", "gang {} waits for its members")
gang_no_room = About(GANG_NO_ROOM, "gang {} waits until all its members fit")
GANG_MIXED = "GangMixedModels"
GANG_SHORT = (GANG_NO_ROOM, GANG_MIXED)
"""Codes of gangs that wait for GPUs."""
gang_mixed = About(
    GANG_MIXED, "gang {} fits only on GPUs of several models, which gangshare.io/mixed-models: allow permits"
)
gang_cannot_fit = About("GangCannotFit", "gang {} cannot start: some of its members fit on no node, even an empty one")
gang_starting = About("GangStarting", "gang {} starts with other pods or nodes first")
"""Its assignments do not include this pod or node."""
gang_taken = About(
    "GangTaken",
    "gang {} has pods of another workload; this pod waits until they have ended or a PodGroup declares the gang",
)
gang_conflict = About("GangConflict", "gang {} has values that differ or cannot be read; the strictest value is used")
gang_again = About("GangAgain", "gang {} is planned again")
gang_undone = About("GangUndone", "gang {} is evicted and restarts as a whole")
gang_lost = About("GangMemberLost", "gang {} lost members and runs with fewer than its minimum")
gang_below = About("GangBelowMinimum", "gang {} runs with fewer than its minimum until more members run")
"""No member is known to be lost: the minimum was raised, or the extender restarted."""
gang_done = About("GangCompleted", "gang {} has done its work")
gang_limit = About("GangTimedOut", "gang {} exceeded its schedule timeout")
priority_capped = About("PriorityCapped", "gang {} gets less than the PriorityClass of its PodGroup gives")
preemption_forbidden = About("PreemptionForbidden", "{} may not preempt other pods")
preemption_postponed = About("PreemptionPostponed", "{} does not preempt for now")
"""No rule forbids the preemption, but no pod is evicted at this moment."""
preemption_stopped = About("PreemptionStopped", "{} stops preempting")
"""The eviction of a victim was refused."""
class_missing = About("ClassMissing", "GpuClass {} does not exist; the pod waits for it")
class_unreadable = About("ClassUnreadable", "GpuClass {} cannot be read; the pod waits until it is corrected")
class_empty = About(NO_MATCH, "no GPU in the cluster is of class {}")
queue_missing = About("QueueMissing", "queue {} does not exist; workloads that name it wait for it")
queue_forbidden = About(
    "QueueForbidden",
    "queue {} does not admit pods of this namespace; workloads that name it wait until it does",
)
queue_closed = About("QueueClosed", "queue {} is closed; its workloads wait until it is open")
"""The queue named is the pod's or a parent; so in the next two."""
queue_unreadable = About("QueueUnreadable", "queue {} cannot be read; its workloads wait until it is corrected")
queue_full = About("QueueFull", "queue {} has no quota left for this request")
runtime_unreadable = About("RuntimeUnreadable", "the expected run time of {} cannot be read and counts as unknown")
no_match = About(NO_MATCH, "no GPU in the cluster matches {}")


def gang_too_large(gang: GroupKey, least: int, most: int) -> Reason:
    """The gang's minimum exceeds the number of binds that can be held together."""
    numbers = f"its minimum is {least} members, and at most {most} can start together here"
    return Reason("GangTooLarge", f"gang {gang} is too large to start as one", numbers)


def preempting(who: str, units: str, over_quota: str, *, spare: bool) -> Reason:
    """Victims are evicted for `who`.

    `over_quota`: what their queues use beyond their fair share, "" if none does. `spare`: all are surplus members.
    """
    if over_quota:
        return Reason("Reclaiming", f"{who} reclaims the fair share of its queue", f"{units}; {over_quota}")
    if spare:
        return Reason("Preempting", f"{who} preempts surplus members of gangs", units)
    return Reason("Preempting", f"{who} preempts pods of lower priority", units)


def preempted(by: str, priority: int, unit: str, *, idle: bool = False) -> Reason:
    """The pod is a victim of `by`; all pods of `unit` are. `idle`: it goes first since it uses none of its GPUs."""
    told = f"{unit} is evicted" + ", which uses none of its GPUs" * idle
    return Reason("Preempted", f"{by} of priority {priority} preempts this pod", told)


def scaling_in(by: str, priority: int) -> Reason:
    """The operator of the pod's job is asked to remove the pod."""
    return Reason("ScalingIn", f"{by} of priority {priority} needs the GPUs of this worker: its job scales in")


def node_leaving(node: str, sign: str) -> Reason:
    """The pod is evicted before its node is removed; `sign` is the taint or label that announces the removal."""
    return Reason(
        "NodeLeaving", f"node {node} is about to be removed: the pod is evicted in time", f"the node has {sign}"
    )


def reclaimed(by: str, unit: str, over_quota: str) -> Reason:
    """The pod is a victim of `by`, whose queue is below its fair share; `over_quota`: what the pod's queue uses."""
    return Reason("Reclaimed", f"{by} reclaims the fair share of its queue", f"{unit} is evicted; {over_quota}")


def for_queue(reason: Reason | None) -> bool:
    """Whether the pod waits for its queue."""
    return reason is not None and reason.code.startswith(QUEUE)


def queue_reserved(numbers: str) -> Reason:
    """The free capacity of the cluster or of a parent queue is guaranteed to other queues."""
    return Reason("QueueReserved", "the free capacity is guaranteed to other queues", numbers)


def unschedulable(message: str) -> Reason:
    """kube-scheduler's own filters refuse every node, before it asks the extender; `message` is its own."""
    return Reason("Unschedulable", "kube-scheduler finds no node for the pod", message)


def not_joined(gpus: int, joined: str, conditions: str, most: int) -> Reason:
    """No node has that many GPUs joined in this way, only `most` (0: not even two)."""
    which = f" that match {conditions}" if conditions else ""
    sentence = f"no node in the cluster has {joined} for {gpus} GPUs{which}"
    return Reason(NO_MATCH, sentence, f"for {most} at most" if most else "not even for 2")


def cannot_fit(what: str, numbers: str) -> Reason:
    """No node could take these requests, even if it were empty."""
    return Reason(CANNOT_FIT, f"no node in the cluster could fit {what}, even if it were empty", numbers)


def no_isolation(demanded: Demanded, nearest: str) -> Reason:
    """No node that could take these requests isolates parts of GPUs as demanded."""
    enforces = "enforces the memory of containers"
    if demanded == "compute":
        enforces = "enforces the memory and caps the compute of containers"
    sentence = f"no node that could fit the pod {enforces}, which {names.ISOLATION}: {demanded} demands"
    return Reason(NO_ISOLATION, sentence, nearest)


def no_room(ask: PodAsk) -> Reason:
    """No node can take these requests now."""
    first = ask.containers[0]
    if len(ask.containers) == 1 and not (first.whole or first.profile) and first.gpus == 1:
        return Reason(NO_ROOM, f"no GPU with {ask_words.part(first, ask.unit_mib)} free")
    return Reason(NO_ROOM, f"no node with {ask_words.wanted(ask)} free")
