"""`gangshare explain pod|group`: a verdict, what to do, and the details in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.cli import console
from extender.cli.errors import CommandError
from extender.engine.planning import defrag_plan
from extender.wire.answers import Earliest, Group, Node, NodeCount, Pod, Slot, Verdict
from protos.contract import mig
from protos.contract.allocation import Allocation, Share
from protos.contract.reason import listed

TAKES_IT = "would take it"
MAX_NAMED = 8
"""Nodes named at most."""


def key(what: str, text: str, namespace: str) -> str:
    """NAMESPACE/NAME of a pod or group given as NAME or NAMESPACE/NAME; raises CommandError that names `what`."""
    before, slash, name = text.rpartition("/")
    if not name or (slash and not before) or "/" in before:
        raise CommandError(f"{what} is {text!r}: expected NAME or NAMESPACE/NAME")
    return f"{before or namespace}/{name}"


def first_lines(name: str, verdict: Verdict, state: str) -> Iterator[str]:
    """The verdict and what to do; `state` is told instead if the extender is older and gives no verdict."""
    yield f"{name} {verdict.headline or state}"
    if verdict.advice:
        yield f"  what to do: {verdict.advice}"


def lines(pod: Pod, node: Node | None) -> Iterator[str]:
    """The pod's verdict and state; `node` is the pod's, None while it has none."""
    yield from first_lines(f"{pod.namespace}/{pod.name}", pod.verdict, f"is {pod.state}")
    if pod.sentence:
        yield from _pending(pod)
    if pod.problem:
        yield f"  problem: {pod.problem}"
    yield from (f"  conflict: {conflict}" for conflict in pod.conflicts)
    if not pod.asks_gpus:
        yield "  it requests no GPU"
    elif pod.allocation:
        yield from _containers(pod.allocation, node)
    elif pod.node:
        yield "  its GPU is unknown: it is charged on every GPU that it could be on"


def _pending(pod: Pod) -> Iterator[str]:
    """Why it is pending, its place in its queue, and what the nodes lack."""
    yield f"  {pod.sentence}"
    if pod.numbers:
        yield f"  {pod.numbers}"
    yield f"  it has waited for {console.duration(pod.since)}"
    yield from _queue(pod)
    if pod.nodes:
        yield f"  {_nodes(pod.nodes)}"
    if (kept := pod.reservation) is not None:
        free = "all of it is free" if kept.complete else "not all of it is free yet"
        gpus = defrag_plan.place(kept.node, kept.gpus)
        yield f"  {gpus} is reserved for it for {console.duration(kept.seconds)}: {free}"


def _nodes(counts: Sequence[NodeCount]) -> str:
    """Nodes by reason: `12 nodes: no whole GPU free · 3: model T4 · 1: cordoned`."""
    first, *others = [(count.nodes, count.why or TAKES_IT) for count in counts]
    noun = "node" if first[0] == 1 else "nodes"
    return " · ".join([f"{first[0]} {noun}: {first[1]}", *(f"{nodes}: {why}" for nodes, why in others)])


def _queue(pending: Pod | Group) -> Iterator[str]:
    """Its queue, its place in it, and the start of the first workload in it."""
    if pending.queue:
        place = f": number {pending.place} of {pending.in_line} pending workloads in it" if pending.place else ""
        pods = f" ({console.count(pending.pending_pods, 'pending pod')})" if pending.pending_pods else ""
        yield f"  queue {pending.queue}{place}{pods}"
    if pending.earliest is not None:
        yield f"  first in its queue: {start(pending.earliest)}"
    elif pending.first is not None:
        yield f"  {pending.first.who} is first in its queue: {start(pending.first)}"


def start(first: Earliest) -> str:
    """When a workload starts at the earliest, after whom, and where."""
    after = f", once {first.after} has ended" if first.after else ""
    nodes = listed(first.nodes, MAX_NAMED)
    guess = "" if first.sure else " (a guess: not all run times are known)"
    when = f"starts in {console.duration(first.seconds)} at the earliest" if first.seconds else "starts at any moment"
    return f"{when}{after}, on {nodes}{guess}"


def group_lines(group: Group) -> Iterator[str]:
    """The gang's verdict, state and members."""
    state = f"is {group.phase} for {console.duration(group.since)}"
    yield from first_lines(f"gang {group.namespace}/{group.name}", group.verdict, state)
    if group.verdict.headline:
        yield f"  it {state}"
    if group.sentence:
        yield f"  {group.sentence}"
    if group.numbers:
        yield f"  {group.numbers}"
    if group.provisioning:
        yield f"  {group.provisioning}"
    yield from _queue(group)
    minimum = "unknown" if group.min_member is None else group.min_member
    yield f"  minimum {minimum}: {group.present} exist, {group.bound} bound, {group.succeeded} succeeded"
    yield from (f"  conflict: {conflict}" for conflict in group.conflicts)
    for member in group.members:
        name = f"{member.name} ({member.role})" if member.role else member.name
        yield f"  {name}: {member.stage.lower().replace('_', ' ')}{f' on {member.node}' if member.node else ''}"
    yield from map(_hold, group.slots)


def _hold(hold: Slot) -> str:
    gpus = f"GPU {', '.join(map(mig.shown, hold.gpus))} of {hold.node}" if hold.gpus else f"a place on {hold.node}"
    member = f"the replacement of {hold.name}" if hold.name else "one more member"
    return f"  {gpus} is held for {console.duration(hold.seconds)} for {member}"


def _containers(allocation: Allocation, node: Node | None) -> Iterator[str]:
    models = {gpu.uuid: f"{gpu.model} {gpu.profile}".rstrip() for gpu in node.gpus} if node else {}
    for container, shares in allocation.containers.items():
        for share in shares:
            model = models.get(share.uuid) or "unknown model"
            amount = _amount(allocation, share)
            yield f"  container {container}: GPU {mig.shown(share.index)} ({model}, {share.uuid}): {amount}"


def _amount(allocation: Allocation, share: Share) -> str:
    if share.whole:
        return "whole"
    mem = [f"{share.mem} {console.unit(allocation.unit_mib)}"] if share.mem else []
    slices = [f"{share.slices}/{allocation.slices_per_gpu} slices"] if share.slices else []
    return ", ".join([*mem, *slices]) or "nothing"
