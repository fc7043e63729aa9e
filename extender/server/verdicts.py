"""The first two lines of every explanation: the verdict, and what to do. Pure.

A reason's code decides both, so a code without an entry here has a general advice.
"""

from __future__ import annotations

from extender.engine.state.node_state import NodeState
from extender.engine.state.pod_state import PodState
from extender.engine.types.refusals import QUEUE
from extender.wire.answers import Gang, Gpu, Node, Pod, Verdict
from extender.wire.listings import Queue
from gangfilter.table import Phase
from protos.contract.reason import Reason

NEVER = (
    "NoMatch",
    "GangTooLarge",
    "GangTimedOut",
    "Ask",
    "UnknownKey",
    "ForeignKey",
    "CannotFit",
    "NoIsolation",
    "GangCannotFit",
)
"""Codes, or how they begin, of workloads that cannot start as they are."""
WAITS_FOR = {
    "NoRoom": "free GPUs",
    "InLine": "the pods before it in its queue",
    "GangNoRoom": "free GPUs for all members",
    "GangAssembling": "missing members",
    "GangStarting": "other members of its gang",
    "Class": "its GpuClass",
    "Gang": "its gang",
    QUEUE: "its queue",
    "AllocationForged": "the removal of a forged allocation",
    "NodesNotChecked": "kube-scheduler, which will try the node that fits",
    "OtherScheduler": "another scheduler",
    "SchedulingGated": "a scheduling gate",
    "SetAside": "the end of its quarantine",
}
"""What a workload waits for, by the code or how it begins; kube-scheduler for all others."""
ADVICE = {
    "NoRoom": "wait, request less, or loosen the selection; `gangshare defrag --for NAME` shows whether moves help",
    "InLine": "wait, or declare its run time (gangshare.io/expected-runtime)",
    "NoMatch": "correct the selection; `gangshare classes` shows the models and classes that exist",
    "CannotFit": "request less, or add a node on which it fits: the sentence names the limit",
    "NoIsolation": "demand less (pod, GpuClass, namespace or --default-isolation), or have a node enforce it",
    "GangCannotFit": "request less, or add nodes on which its members fit",
    "GangMixedModels": "set gangshare.io/mixed-models: allow, or wait",
    "ClassMissing": "create the class, or correct gangshare.io/gpu-class",
    "ClassUnreadable": "correct the class",
    "QueueFull": "wait until pods of the queue end, or ask the queue's owner for more",
    "QueueReserved": "wait, or give its queue a guarantee of its own",
    "QueueClosed": "ask the queue's owner to open it (`gangshare queue resume NAME`), or move to another queue",
    "QueueForbidden": "name a queue that admits this namespace; `gangshare queues` shows all queues",
    "QueueMissing": "create the queue, or correct gangshare.io/queue",
    "QueueUnreadable": "correct the queue",
    "AllocationForged": "leave gangshare.io/allocation out of templates and backups",
    "SetAside": "report it with the traceback in the extender's log",
    "OtherScheduler": "set schedulerName to a scheduler that asks Gangshare",
    "SchedulingGated": "the controller that set the gate must remove it",
    "Unschedulable": "read kube-scheduler's message, and correct the pod or the nodes",
    "Unasked": "wait; if it lasts, look at the pod's Events and at kube-scheduler",
    "GangAssembling": "create the missing members, or correct the minimum",
    "GangNoRoom": "wait, or request less; `gangshare defrag --for NAME` shows whether moves help",
    "GangTooLarge": "lower the minimum, or split the gang",
    "GangTimedOut": "delete the gang and create it again, or raise its schedule timeout",
    "GangMemberLost": "wait for the replacements; the job's controller creates them",
    "GangTaken": "name another group, or declare the gang by a PodGroup",
    "GangUnnamed": "set gangshare.io/group on all members",
    "Ask": "correct the request, and create the pod again",
    "UnknownKey": "correct the key, and create the pod again",
    "ForeignKey": "write what the sentence says, and create the pod again",
}
"""What to do, by the code or how it begins."""
NOTHING = "nothing"


def of_pod(pod: Pod, state: PodState, *, fits_nowhere: bool) -> Verdict:
    """The verdict on a pod. `fits_nowhere`: no node could take it even without pods."""
    if pod.state == "bound":
        if state.info.running:
            return Verdict(state="running", headline=f"runs on {pod.node}", advice=NOTHING)
        return _soon(f"starts soon on {pod.node}: it is bound, and its containers do not run yet")
    if pod.state != "waiting":
        return _soon(f"starts soon on {pod.node}: its GPUs are chosen")
    if pod.reservation is not None and pod.reservation.complete:
        return _soon(f"starts soon on {pod.reservation.node}: its GPUs are reserved and free")
    if pod.code in ("GangStarting", "NodesNotChecked"):
        return _soon(f"starts soon: {pod.sentence}")
    if fits_nowhere:
        advice = "request less, or correct the selection: the table of nodes says what each lacks"
        return Verdict(state="never", headline=f"can never run on these nodes ({pod.code})", advice=advice)
    return _pending(Reason(pod.code, pod.sentence))


def of_gang(gang: Gang) -> Verdict:
    """The verdict on a gang."""
    match gang.phase:
        case Phase.RUNNING:
            return Verdict(state="running", headline=f"runs with {gang.bound} members", advice=NOTHING)
        case Phase.STARTING | Phase.BINDING:
            return _soon(f"starts soon: {gang.bound} of {gang.present} members are bound")
        case Phase.COMPLETED:
            return Verdict(state="completed", headline="is completed", advice=NOTHING)
        case Phase.DEGRADED | Phase.UNDOING:
            return Verdict(
                state=gang.phase.lower(),
                headline=f"is {gang.phase.lower()} ({gang.code})",
                advice=what_to_do(gang.code),
            )
    return _pending(Reason(gang.code, gang.sentence))


def _soon(headline: str) -> Verdict:
    return Verdict(state="starting", headline=headline, advice=NOTHING)


def _pending(reason: Reason) -> Verdict:
    code = f" ({reason.code})" if reason.code else ""
    if reason.code.startswith(NEVER):
        return Verdict(state="never", headline=f"can never run as it is{code}", advice=what_to_do(reason.code))
    what = _longest(WAITS_FOR, reason.code) or "kube-scheduler"
    return Verdict(state="waiting", headline=f"waits for {what}{code}", advice=what_to_do(reason.code))


def what_to_do(code: str) -> str:
    """What to do about a reason of this code."""
    return _longest(ADVICE, code) or NOTHING


def _longest(table: dict[str, str], code: str) -> str:
    """The entry of the longest key with which the code begins, "" if there is none."""
    return max(((key, text) for key, text in table.items() if code.startswith(key)), key=_length, default=("", ""))[1]


def _length(entry: tuple[str, str]) -> int:
    return len(entry[0])


def of_node(node: Node, state: NodeState) -> Verdict:
    """The verdict on a node: whether it takes new pods."""
    if state.books is None and not state.problem:
        return _refuses("has no GPUs of Gangshare", "if it has GPUs, look at the plugin's pod on this node")
    if state.problem:
        return _refuses(f"takes no new pods with GPUs: {state.problem}", "correct it, or wait until the node is gone")
    if node.state != "ready":
        return _refuses("takes no new pods with GPUs: its plugin is not ready", "look at the plugin's log")
    if state.unschedulable:
        return _refuses("takes no new pods: it is cordoned", f"kubectl uncordon {node.name}")
    offered = [gpu for gpu in node.gpus if gpu.health == "ok" and not gpu.cordoned]
    makes = any(gpu.makes for gpu in node.gpus)
    if not (offered or makes):
        return _refuses("takes no new pods with GPUs: no GPU is healthy and not cordoned", "look at the column HEALTH")
    if not makes and all(_is_full(gpu, node.slices_per_gpu) for gpu in offered):
        return Verdict(state="full", headline="takes no new pods with GPUs: all GPUs are in use", advice=NOTHING)
    idle = sum(not (gpu.pods or gpu.profile) for gpu in offered)
    instances = [gpu for gpu in node.gpus if gpu.profile]
    free = f"{idle} of {len(node.gpus) - len(instances)} GPUs wholly free"
    if instances:
        free += f", {sum(not gpu.pods and gpu in offered for gpu in instances)} of {len(instances)} MIG instances free"
    if makes:
        free += ", MIG instances can be made"
    return Verdict(state="open", headline=f"takes new pods: {free}", advice=NOTHING)


def _is_full(gpu: Gpu, slices_per_gpu: int) -> bool:
    return gpu.whole or gpu.mem_used >= gpu.mem or gpu.slices_used >= slices_per_gpu


def of_gpu(gpu: Gpu, on: Verdict, node: str) -> Verdict:
    """The verdict on a GPU of a node: whether new pods may get it."""
    if gpu.makes and on.state != "closed":
        return Verdict(state="open", headline=f"MIG instances are made of it: now {gpu.makes}", advice=NOTHING)
    if gpu.on_demand and on.state != "closed":
        return Verdict(state="full", headline="is in use: no MIG instance can be made of it now", advice=NOTHING)
    if gpu.health != "ok":
        return _refuses(f"takes no new pods: it is {gpu.health}", "docs/operations.md explains the health of GPUs")
    if gpu.cordoned:
        return _refuses("takes no new pods: it is cordoned", f"correct gangshare.io/cordoned-gpus of node {node}")
    if on.state == "closed":
        return _refuses(f"takes no new pods: node {node} {on.headline}", on.advice)
    if gpu.whole:
        return Verdict(state="full", headline="is in use as a whole", advice=NOTHING)
    if not gpu.pods:
        return Verdict(state="open", headline="is wholly free", advice=NOTHING)
    free = f"{max(0, gpu.mem - gpu.mem_used)} of {gpu.mem} units"
    return Verdict(state="open", headline=f"takes new pods: {free} free, used by {len(gpu.pods)}", advice=NOTHING)


def of_queue(queue: Queue) -> Verdict:
    """The verdict on a queue: whether its pods start."""
    if queue.problem:
        return _refuses(f"cannot be read: {queue.problem}", "correct the queue")
    if queue.closed:
        by = queue.closed_by or queue.name
        cause = "" if by == queue.name else f" with queue {by} above it"
        return _refuses(
            f"is closed{cause}: no pod of it starts", f"its owner may open it: `gangshare queue resume {by}`"
        )
    counts = f"{queue.running} pods run, {queue.waiting} wait"
    if queue.exceeded:
        return _refuses(f"is above its capability: {counts}", "wait until pods of it end")
    return Verdict(state="open", headline=f"is open: {counts}", advice=NOTHING)


def _refuses(headline: str, advice: str) -> Verdict:
    return Verdict(state="closed", headline=headline, advice=advice)
