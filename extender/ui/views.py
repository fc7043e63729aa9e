"""What the page shows of nodes, queues and workloads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation

import msgspec
from msgspec.structs import asdict

from extender.wire import page, visibility, whatif
from extender.wire.answers import Gang, Holder, Node, NodePage, Pod, WaitingPod
from extender.wire.listings import Queue
from protos.contract import mig
from protos.contract.allocation import Allocation, Share
from protos.contract.inventory import IN_MIG_MODE
from protos.contract.printable import brief, printable
from protos.contract.quantity import amount_of_memory
from protos.contract.queue import GPUS

MOST_TEXT = 300
"""Characters of a name or a sentence that are shown."""
MOST_PLACES = 50
"""Places of a what-if that are named."""
_explanation, _status = msgspec.json.Decoder(Pod), msgspec.json.Decoder(whatif.Status)
OUTSIDE = "unknown"
"""The state of a node without an inventory."""


def text(given: str) -> str:
    """Text of others, printable and short. The browser shows it as text, never as HTML."""
    return brief(printable(given), MOST_TEXT)


def node(status: visibility.GpuNodeStatus) -> page.Node:
    """A node with its GPUs."""
    models = sorted({gpu.model for gpu in status.gpus if gpu.model})
    return page.Node(
        name=text(status.name),
        state=_state(status),
        why=text(status.problem) if status.problem else None,
        model=text(", ".join(models)),
        gpus=tuple(_gpu(status, gpu) for gpu in status.gpus),
    )


def _state(status: visibility.GpuNodeStatus) -> page.NodeState:
    if status.state == OUTSIDE:
        return "no-inventory"
    if status.unschedulable:
        return "cordoned"
    return "not-ready" if status.problem or status.state != "ready" else "ok"


def _gpu(node: visibility.GpuNodeStatus, gpu: visibility.GpuStatus) -> page.Gpu:
    unit = gpu.unit_mib or node.unit_mib
    return page.Gpu(
        id=mig.shown(gpu.index),
        model=text(gpu.model),
        memory=gpu.mem * unit,
        used=gpu.mem_used * unit,
        slices=gpu.slices or node.slices_per_gpu,
        slices_used=gpu.slices_used,
        state=_gpu_state(gpu),
        why=text(gpu.verdict.headline) or None,
        profile=text(gpu.profile) or None,
        level=text(gpu.isolation or node.isolation),
        holders=tuple(_holder(holder, unit) for holder in gpu.pods),
        others=gpu.other_pods,
    )


def _gpu_state(gpu: visibility.GpuStatus) -> page.GpuState:
    if gpu.health == IN_MIG_MODE:
        return "mig"
    if gpu.health != "ok":
        return "sick"
    if gpu.cordoned:
        return "cordoned"
    if not gpu.pods and not gpu.other_pods and not gpu.mem_used and not gpu.whole:
        return "free"
    if gpu.pods and not gpu.other_pods and all(pod.kept or pod.reserved for pod in gpu.pods):
        return "kept"
    if gpu.profile:
        return "mig"
    return "whole" if gpu.whole else "part"


def _holder(holder: Holder, unit: int) -> page.Holder:
    return page.Holder(
        pod=text(f"{holder.namespace}/{holder.name}") if holder.name else None,
        queue=text(holder.queue),
        memory=holder.mem * unit,
        slices=holder.slices,
        whole=holder.whole,
        kept=holder.kept,
        reserved=holder.reserved,
    )


def queue(given: Queue) -> page.Queue:
    """A queue in GPUs."""
    quota = _gpus(given.deserved)
    quota = quota if quota is not None else _gpus(given.guarantee)
    used, demand = _gpus(given.allocated) or 0.0, _gpus(given.requested) or 0.0
    return page.Queue(
        name=text(given.name),
        parent=text(given.parent),
        depth=given.depth,
        gpus=quota,
        limit=_gpus(given.capability),
        used=used,
        demand=demand,
        share=_gpus(given.fair_share),
        borrowed=round(max(0.0, used - quota), 3) if quota is not None else 0.0,
        lent=round(max(0.0, quota - max(used, demand)), 3) if quota is not None else 0.0,
        pending=given.waiting,
        running=given.running,
        closed=given.closed,
        problem=text(given.problem or given.misplaced or given.exceeded),
    )


def _gpus(amounts: Mapping[str, str]) -> float | None:
    """The GPUs among amounts; None if they are not given or are no number, as "unlimited" is none."""
    try:
        amount = Decimal(amounts[GPUS])
    except (KeyError, InvalidOperation):
        return None
    return float(amount) if amount.is_finite() else None


def workloads(gangs: Iterable[Gang], pods: Iterable[WaitingPod], most: int) -> tuple[page.Workload, ...]:
    """The gangs and the pending pods, at most so many of each, in the order of their names."""
    ordered = sorted(gangs, key=lambda gang: (gang.namespace, gang.name))[:most]
    pending = sorted(pods, key=lambda pod: (pod.namespace, pod.name))[:most]
    return (*map(_gang, ordered), *map(_pod, pending))


def _gang(gang: Gang) -> page.Workload:
    own = gang if isinstance(gang, visibility.GangStatus) else None
    return page.Workload(
        kind="gang",
        namespace=text(gang.namespace),
        name=text(gang.name),
        queue=text(own.queue) if own is not None else "",
        phase=text(gang.phase),
        seconds=gang.since,
        members=gang.present,
        minimum=gang.min_member,
        running=gang.bound + gang.succeeded,
        earliest_start=own.earliest.seconds if own is not None and own.earliest is not None else None,
        reason=text(gang.code),
        message=_message(gang.sentence, gang.numbers),
    )


def _pod(pod: WaitingPod) -> page.Workload:
    return page.Workload(
        kind="pod",
        namespace=text(pod.namespace),
        name=text(pod.name),
        queue=text(pod.queue),
        phase="Pending",
        seconds=pod.since,
        gang=text(pod.group),
        earliest_start=pod.earliest.seconds if pod.earliest is not None else None,
        reason=text(pod.code),
        message=_message(pod.sentence, pod.numbers),
    )


def _message(sentence: str, numbers: str) -> str:
    return text(f"{sentence}: {numbers}" if numbers else sentence)


def full(node: Node) -> visibility.GpuNodeStatus:
    """A node of the status port, as the aggregated API shows it."""
    gpus = tuple(
        visibility.GpuStatus(
            **{**asdict(gpu), "pods": gpu.pods, "slices": gpu.slices or node.slices_per_gpu},
            node=node.name,
            unit_mib=node.unit_mib,
            isolation=node.isolation,
        )
        for gpu in node.gpus
    )
    return visibility.GpuNodeStatus(**{**asdict(node), "gpus": gpus})


def links(node: NodePage) -> page.Links:
    """The links between the GPUs of a node, as a table."""
    kinds = {pair: text(link.kind) for link in node.links for pair in (link.gpus, link.gpus[::-1])}
    linked = sorted({index for pair in kinds for index in pair})
    rows = (tuple(kinds.get((a, b), "") for b in linked) for a in linked)
    return page.Links(gpus=tuple(map(mig.shown, linked)), rows=tuple(rows))


def explained(answer: bytes) -> page.Explained:
    """A pod with the GPUs that it holds, or that are reserved for it, in words; raises msgspec's errors."""
    pod = _explanation.decode(answer)
    return page.Explained(pod=msgspec.Raw(answer), held=tuple(text(line) for line in _held(pod)))


def _held(pod: Pod) -> Iterator[str]:
    if (kept := pod.reservation) is not None:
        free = "all of it is free" if kept.complete else "not all of it is free yet"
        yield f"GPU {_numbers(kept.gpus)} of {kept.node} is reserved for it: {free}."
    if pod.allocation is not None:
        for container, shares in pod.allocation.containers.items():
            for share in shares:
                yield f"Container {container}: GPU {mig.shown(share.index)}, {_amount(pod.allocation, share)}."


def _amount(given: Allocation, share: Share) -> str:
    memory = amount_of_memory(share.mem, given.unit_mib) if share.mem else ""
    slices = f"{share.slices} of {given.slices_per_gpu} slices" if share.slices else ""
    return "whole" if share.whole else ", ".join(filter(None, (memory, slices)))


def answered(answer: bytes) -> page.Answered:
    """The answer to a what-if, with the places of its pods in words; raises msgspec's errors."""
    status = _status.decode(answer)
    placed = [pod for workload in status.workloads for pod in workload.pods if pod.node]
    lines = [f"{pod.name} on {pod.node}, GPU {_numbers(pod.gpus)}" for pod in placed[:MOST_PLACES]]
    lines += [f"and {len(placed) - MOST_PLACES} more"] if len(placed) > MOST_PLACES else []
    return page.Answered(status=msgspec.Raw(answer), places=tuple(map(text, lines)))


def _numbers(indexes: Iterable[int]) -> str:
    return ", ".join(map(mig.shown, indexes)) or "none"
