"""`gangshare explain`: the state of a pod or gang in sentences, or why it is pending. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from extender.cli import console
from extender.cli.errors import CommandError
from extender.engine.planning import defrag_plan
from extender.wire.answers import Earliest, Group, Node, Pod, Slot
from protos.contract.allocation import Allocation, Share
from protos.contract.reason import listed

COSTS = "terms: thousandths of a GPU that it costs others; score: minus their sum, the highest is best"
EMPTINESS = "terms: thousandths; score: emptiness less links, the highest is best"
HERE = "; here: as if the pod were not there yet"
MAX_NAMED = 8
"""Nodes named at most."""


def key(what: str, text: str, namespace: str) -> str:
    """NAMESPACE/NAME of a pod or group given as NAME or NAMESPACE/NAME; raises CommandError that names `what`."""
    before, slash, name = text.rpartition("/")
    if not name or (slash and not before) or "/" in before:
        raise CommandError(f"{what} is {text!r}: expected NAME or NAMESPACE/NAME")
    return f"{before or namespace}/{name}"


def lines(pod: Pod, node: Node | None) -> Iterator[str]:
    """The pod's state; `node` is the pod's, None while it has none."""
    name = f"{pod.namespace}/{pod.name}"
    if pod.sentence:
        yield f"{name} waits for {console.duration(pod.since)} ({pod.code})"
        yield f"  {pod.sentence}"
        if pod.numbers:
            yield f"  {pod.numbers}"
        yield from _queue(pod)
        if (kept := pod.reservation) is not None:
            free = "all of it is free" if kept.complete else "not all of it is free yet"
            gpus = defrag_plan.place(kept.node, kept.gpus)
            yield f"  {gpus} is reserved for it for {console.duration(kept.seconds)}: {free}"
    else:
        yield f"{name} is {pod.state} {'to' if pod.state == 'bound' else 'on'} {pod.node}"
    if pod.problem:
        yield f"  problem: {pod.problem}"
    yield from (f"  conflict: {conflict}" for conflict in pod.conflicts)
    if not pod.asks_gpus:
        yield "  it requests no GPU"
    elif pod.allocation:
        yield from _containers(pod.allocation, node)
    elif pod.node:
        yield "  its GPU is unknown: it is charged on every GPU that it could be on"


def ranking(pod: Pod) -> Iterator[str]:
    """The best nodes for the pod and its own node, with its score on each and the score's terms."""
    if not pod.ranking:
        return
    names = list(dict.fromkeys(name for rank in pod.ranking for name in rank.terms))
    table = console.columns("NODE", "SCORE", *map(str.upper, names))
    for column in table.columns[1:]:
        column.justify = "right"
    for rank in pod.ranking:
        terms = (str(rank.terms[name]) if rank.terms else "–" for name in names)
        table.add_row(f"{rank.node} (here)" if rank.here else rank.node, str(rank.score), *terms)
    yield ""
    yield from (f"  {line}" for line in console.page(table).splitlines())
    units = EMPTINESS if "emptiness" in names else COSTS
    yield f"  {units}{HERE if any(rank.here for rank in pod.ranking) else ''}"


def _queue(pending: Pod | Group) -> Iterator[str]:
    """Its queue, its place in it, and the start of the first workload in it."""
    if pending.queue:
        place = f": number {pending.place} of {pending.in_line} pending workloads in it" if pending.place else ""
        yield f"  queue {pending.queue}{place}"
    if pending.earliest is not None:
        yield f"  first in its queue: {_start(pending.earliest)}"
    elif pending.first is not None:
        yield f"  {pending.first.who} is first in its queue: {_start(pending.first)}"


def _start(first: Earliest) -> str:
    after = f", once {first.after} has ended" if first.after else ""
    nodes = listed(first.nodes, MAX_NAMED)
    guess = "" if first.sure else " (a guess: not all run times are known)"
    when = f"starts in {console.duration(first.seconds)} at the earliest" if first.seconds else "starts at any moment"
    return f"{when}{after}, on {nodes}{guess}"


def group_lines(group: Group) -> Iterator[str]:
    """The gang's state."""
    yield f"{group.namespace}/{group.name} is {group.phase} for {console.duration(group.since)}"
    if group.sentence:
        yield f"  {group.sentence} ({group.code})"
    if group.numbers:
        yield f"  {group.numbers}"
    yield from _queue(group)
    minimum = "unknown" if group.min_member is None else group.min_member
    yield f"  minimum {minimum}: {group.present} exist, {group.bound} bound, {group.succeeded} succeeded"
    yield from (f"  conflict: {conflict}" for conflict in group.conflicts)
    for member in group.members:
        name = f"{member.name} ({member.role})" if member.role else member.name
        yield f"  {name}: {member.stage.lower().replace('_', ' ')}{f' on {member.node}' if member.node else ''}"
    yield from map(_hold, group.slots)


def _hold(hold: Slot) -> str:
    gpus = f"GPU {', '.join(map(str, hold.gpus))} of {hold.node}" if hold.gpus else f"a place on {hold.node}"
    member = f"the replacement of {hold.name}" if hold.name else "one more member"
    return f"  {gpus} is held for {console.duration(hold.seconds)} for {member}"


def _containers(allocation: Allocation, node: Node | None) -> Iterator[str]:
    models = {gpu.uuid: gpu.model for gpu in node.gpus} if node else {}
    for container, shares in allocation.containers.items():
        for share in shares:
            model = models.get(share.uuid) or "unknown model"
            amount = _amount(allocation, share)
            yield f"  container {container}: GPU {share.index} ({model}, {share.uuid}): {amount}"


def _amount(allocation: Allocation, share: Share) -> str:
    if share.whole:
        return "whole"
    mem = [f"{share.mem} {console.unit(allocation.unit_mib)}"] if share.mem else []
    slices = [f"{share.slices}/{allocation.slices_per_gpu} slices"] if share.slices else []
    return ", ".join([*mem, *slices]) or "nothing"
