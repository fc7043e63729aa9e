"""`gangshare explain`: where a pod or a gang is, or why it waits. Pure: the extender's books in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator

from extender.cli import console, top
from extender.cli.errors import CommandError
from extender.engine.planning import defrag_plan
from extender.wire.answers import Earliest, Group, Node, Pod, Reservation, Slot
from protos.contract.allocation import Allocation
from protos.contract.reason import listed

COSTS = "terms: thousandths of a GPU that it costs others; score: minus their sum, the highest is best"
EMPTINESS = "terms: thousandths; score: emptiness less links, the highest is best"
NAMED = 8
"""Nodes named at most."""
HERE = "; here: as if it were not there yet"


def key(what: str, text: str, namespace: str) -> str:
    """NAMESPACE/NAME of a pod or group (`what`) written as NAME or NAMESPACE/NAME; raises CommandError."""
    before, slash, name = text.rpartition("/")
    if not name or (slash and not before) or "/" in before:
        raise CommandError(f"{what} is {text!r}: expected NAME or NAMESPACE/NAME")
    return f"{before or namespace}/{name}"


def lines(pod: Pod, node: Node | None) -> Iterator[str]:
    """The answer, line by line; `node` is the pod's, None while it has none."""
    who = f"{pod.namespace}/{pod.name}"
    if pod.sentence:
        yield f"{who} waits for {console.duration(pod.since)} ({pod.code})"
        yield f"  {pod.sentence}"
        if pod.numbers:
            yield f"  {pod.numbers}"
        yield from _line(pod)
        if pod.reservation is not None:
            yield _reserved(pod.reservation)
    else:
        yield f"{who} is {pod.state} {'to' if pod.state == 'bound' else 'on'} {pod.node}"
    if pod.problem:
        yield f"  problem: {pod.problem}"
    if not pod.asks_gpus:
        yield "  it asks no GPU"
    elif pod.allocation:
        yield from _containers(pod.allocation, node)
    elif pod.node:
        yield "  its GPU is unknown: it is charged on every GPU that it could be on"


def ranking(pod: Pod) -> Iterator[str]:
    """The nodes that are best for the pod, and its own, with its score on each and the terms of that, line by line."""
    if not pod.ranking:
        return
    names = list(dict.fromkeys(name for rank in pod.ranking for name in rank.terms))
    table = console.columns("NODE", "SCORE", *map(str.upper, names))
    for column in table.columns[1:]:
        column.justify = "right"
    for rank in pod.ranking:
        told = (str(rank.terms[name]) if rank.terms else "–" for name in names)
        table.add_row(f"{rank.node} (here)" if rank.here else rank.node, str(rank.score), *told)
    yield ""
    yield from (f"  {line}" for line in console.page(table).splitlines())
    units = EMPTINESS if "emptiness" in names else COSTS
    yield f"  {units}{HERE if any(rank.here for rank in pod.ranking) else ''}"


def _reserved(kept: Reservation) -> str:
    lasts = f"is reserved for it for {console.duration(kept.seconds)}"
    free = "all of it is free" if kept.complete else "not all of it is free yet"
    return f"  {defrag_plan.place(kept.node, kept.gpus)} {lasts}: {free}"


def _line(of: Pod | Group) -> Iterator[str]:
    """Its queue, its place there, and when the first in line starts."""
    if of.queue:
        turn = f": number {of.place} of {of.in_line} pending workloads in it" if of.place else ""
        yield f"  queue {of.queue}{turn}"
    if of.earliest is not None:
        yield f"  first in its queue: {_start(of.earliest)}"
    elif of.first is not None:
        yield f"  {of.first.who} is first in its queue: {_start(of.first)}"


def _start(first: Earliest) -> str:
    """When it has room, and what that rests on."""
    after = f", once {first.after} has ended" if first.after else ""
    nodes = listed(first.nodes, NAMED)
    guess = "" if first.sure else " (a guess: not all run times are known)"
    when = f"starts in {console.duration(first.seconds)} at the earliest" if first.seconds else "starts at any moment"
    return f"{when}{after}, on {nodes}{guess}"


def group_lines(group: Group) -> Iterator[str]:
    """The answer for a gang, line by line."""
    yield f"{group.namespace}/{group.name} is {group.phase} for {console.duration(group.since)}"
    if group.sentence:
        yield f"  {group.sentence} ({group.code})"
    if group.numbers:
        yield f"  {group.numbers}"
    yield from _line(group)
    least = "unknown" if group.min_member is None else group.min_member
    yield f"  minimum {least}: {group.present} exist, {group.bound} bound, {group.succeeded} succeeded"
    yield from (f"  conflict: {conflict}" for conflict in group.conflicts)
    for member in group.members:
        who = f"{member.name} ({member.role})" if member.role else member.name
        yield f"  {who}: {member.stage.lower().replace('_', ' ')}{f' on {member.node}' if member.node else ''}"
    yield from map(_slot, group.slots)


def _slot(slot: Slot) -> str:
    gpus = f"GPU {', '.join(map(str, slot.gpus))} of {slot.node}" if slot.gpus else f"a place on {slot.node}"
    whom = f"the replacement of {slot.name}" if slot.name else "one more member"
    return f"  {gpus} is held for {console.duration(slot.seconds)} for {whom}"


def _containers(allocation: Allocation, node: Node | None) -> Iterator[str]:
    models = {gpu.uuid: gpu.model for gpu in node.gpus} if node else {}
    for container, shares in allocation.containers.items():
        for share in shares:
            held = top.amount(allocation.unit_mib, allocation.slices_per_gpu, share.mem, share.slices, share.whole)
            model = models.get(share.uuid) or "unknown model"
            yield f"  container {container}: GPU {share.index} ({model}, {share.uuid}): {held}"
